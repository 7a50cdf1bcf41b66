"""The target assignment of a large group, computed and written in slices.

A slice is an operation of its own in a turn of the loop of its own, so that other requests are
answered in between. Until the last one is written the group keeps its assignment epoch, and its
members what they have: as long as an assignment interval (KIP-1263) that has not passed.

The assignors are generators that yield after a bounded part of their work.

Kafka: none; its coordinators have threads of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

    from ottla.coordinator.group.member_group import MemberGroup
    from ottla.coordinator.runtime import CoordinatorRecord

T = TypeVar("T")
Steps: TypeAlias = "Generator[None, None, T]"
"""A computation that yields after a bounded part of its work, and returns its result."""
Slices: TypeAlias = "Generator[list[CoordinatorRecord], None, T]"
"""Lists of records, each to be written before the next is computed."""

SLICE: Final = 100
"""Members, partitions or tasks whose assignment is computed or written in one slice."""
LARGE: Final = SLICE // 2
"""Members from which on a group's assignment is computed in slices."""


def is_due(timestamp_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether the assignment interval has passed since the last assignment; 0 means none.

    A timestamp in the future comes from a clock that was ahead, usually another broker's: in Kafka
    its group waits until the clock of its coordinator has reached it.
    """
    return not timestamp_ms or not timestamp_ms <= now_ms < timestamp_ms + interval_ms


def is_large(group: MemberGroup[Any, Any]) -> bool:
    """Whether the group's assignment is computed in slices."""
    return len(group.members) >= LARGE


def without_records(steps: Steps[T]) -> Slices[T]:
    """Return the slices of a computation, which write nothing."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        yield []
