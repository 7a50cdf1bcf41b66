"""What waits until a log is committed up to an offset, in the order of these offsets.

The runtime of the controller and that of the coordinators release their responses by it.

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

    def add(self, offset: int, waiter: W) -> None:
        """Wait for an offset, which is not before that of an earlier waiter."""
        self._waiting.append((offset, waiter))

    def take(self, committed_offset: int) -> Iterator[W]:
        """Remove and yield one after the other what waits for no more than an offset.

        What is done with one may add others.
        """
        waiting = self._waiting
        while waiting and waiting[0][0] <= committed_offset:
            yield waiting.popleft()[1]

    def take_all(self) -> list[W]:
        """Remove and return all, because none of them is going to be committed here."""
        waiting = [waiter for _, waiter in self._waiting]
        self._waiting.clear()  # the same deque, of which `take` may be in the middle
        return waiting
