"""A queue of waiters for a log's commit, in the order of the offsets they wait for.

The runtimes of the controller and of the coordinators release their responses by it.

Kafka: org.apache.kafka.deferred.DeferredEventQueue.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

W = TypeVar("W")


class OffsetQueue(Generic[W]):
    """Waiters by offset; those of one offset keep the order in which they were added."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, W]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first_offset(self) -> int | None:
        """The lowest offset that is waited for."""
        return self._waiting[0][0] if self._waiting else None

    def add(self, offset: int, waiter: W) -> None:
        """Add a waiter for an offset that is not lower than that of the waiter added last."""
        self._waiting.append((offset, waiter))

    def take(self, committed_offset: int) -> Iterator[W]:
        """Remove and yield the waiters for offsets up to the committed one.

        Waiters may be added meanwhile.
        """
        waiting = self._waiting
        while waiting and waiting[0][0] <= committed_offset:
            yield waiting.popleft()[1]

    def take_all(self) -> list[W]:
        """Remove and return all waiters: what they wait for will not be committed here."""
        waiting = [waiter for _, waiter in self._waiting]
        self._waiting.clear()  # the same deque, of which `take` may be in the middle
        return waiting
