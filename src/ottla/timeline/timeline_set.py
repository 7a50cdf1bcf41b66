"""A set that can be read at, and reverted to, an earlier epoch.

Kafka: org.apache.kafka.timeline.TimelineHashSet. Iteration is in insertion order, so
that decisions made by iterating are the same in every run.
"""

from __future__ import annotations

from collections.abc import MutableSet
from typing import TYPE_CHECKING, TypeVar

from ottla.timeline.timeline_dict import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Iterator, KeysView

    from ottla.timeline.snapshot_registry import SnapshotRegistry

T = TypeVar("T")


class TimelineSet(MutableSet[T]):
    """Behaves as a set with insertion order."""

    __slots__ = ("_members",)

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._members: TimelineDict[T, None] = TimelineDict(registry)

    def __contains__(self, value: object) -> bool:
        return value in self._members

    def __iter__(self) -> Iterator[T]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"TimelineSet({list(self._members)!r})"

    def add(self, value: T) -> None:
        """Add value; no effect when it is present."""
        if value not in self._members:
            self._members[value] = None

    def discard(self, value: T) -> None:
        """Remove value; no effect when it is absent."""
        if value in self._members:
            del self._members[value]

    def clear(self) -> None:
        """Remove all values."""
        self._members.clear()

    def at(self, epoch: int) -> KeysView[T]:
        """Return the content at epoch; KeyError for an epoch without a snapshot."""
        return self._members.at(epoch).keys()
