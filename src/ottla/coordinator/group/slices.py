"""The target assignment of a large group, computed and written in slices.

A slice is an operation of its own in a turn of the loop of its own, so that other requests are
answered in between. Until the last one is written the group keeps its assignment epoch, and its
members what they have: as long as an assignment interval (KIP-1263) that has not passed.

The assignors are generators that yield after a bounded part of their work.

Kafka: none; its coordinators have threads of their own.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from ottla.coordinator.runtime.result import Result, empty_result

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Mapping

    from ottla.coordinator.group.kinds import KindOfGroups
    from ottla.coordinator.group.member_group import MemberGroup
    from ottla.coordinator.runtime import CoordinatorRecord, ShardTimers
    from ottla.errors import KafkaError

T = TypeVar("T")
Steps: TypeAlias = "Generator[None, None, T]"
"""A computation that yields after a bounded part of its work, and returns its result."""
Slices: TypeAlias = "Generator[list[CoordinatorRecord], None, T]"
"""Lists of records, each to be written before the next is computed."""

Compute: TypeAlias = "Callable[[Any, dict[str, Any]], Steps[Mapping[str, Any]]]"
"""Computes the targets of a group's members from the group and its members by id."""

SLICE: Final = 100
"""Members, partitions or tasks whose assignment is computed or written in one slice."""
LARGE: Final = SLICE // 2
"""Members from which on a group's assignment is computed in slices."""
_NEXT_TURN_MS: Final = 1


def is_due(timestamp_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether the assignment interval has passed since the last assignment; 0 means none.

    A timestamp in the future comes from a clock that was ahead, usually another broker's: in Kafka
    its group waits until the clock of its coordinator has reached it.
    """
    return not timestamp_ms or not timestamp_ms <= now_ms < timestamp_ms + interval_ms


def is_large(group: MemberGroup[Any, Any]) -> bool:
    """Whether the group's assignment is computed in slices."""
    return len(group.members) >= LARGE


def must_compute(
    groups: KindOfGroups[Any, Any],
    group: MemberGroup[Any, Any],
    group_epoch: int,
    compute: Compute,
    records: TargetRecords,
) -> bool:
    """Whether the target assignment is due, and to be computed at once.

    That of a large group is begun in slices, unless it is the group's first.
    """
    timestamp_ms = group.assignment_timestamp_ms
    interval_ms = groups.settings(group.group_id).assignment_interval_ms
    if group_epoch <= group.assignment_epoch or not is_due(
        timestamp_ms, interval_ms, groups.clock.now_ms()
    ):
        return False
    if not timestamp_ms or not is_large(group):
        return True
    key = f"{groups.kind.lower()}-target", group.group_id
    run(groups.timers, key, _target_slices(groups, group.group_id, compute, records))
    return False


def _target_slices(
    groups: KindOfGroups[Any, Any], group_id: str, compute: Compute, records: TargetRecords
) -> Slices[None]:
    group = groups.find(group_id)
    if group is not None and group.epoch > group.assignment_epoch:
        yield from write_target(groups, group, compute(group, dict(group.members)), records)


def finish(steps: Steps[T]) -> T:
    """Run a computation to its end at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def without_records(steps: Steps[T]) -> Slices[T]:
    """Return the slices of a computation, which write nothing."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        yield []


def run(timers: ShardTimers, key: Hashable, slices: Slices[None]) -> None:
    """Run slices one by one, unless some of this key are under way.

    The rest is dropped when records of one cannot be written.
    """
    if key in timers:
        return

    def cancel_if_failed(error: KafkaError | None) -> None:
        if error is not None:
            timers.cancel(key)

    def step() -> Result[None]:
        records = next(slices, None)
        if records is None:
            return empty_result()
        timers.schedule(key, _NEXT_TURN_MS, step)
        return Result(None, records, on_append=cancel_if_failed)

    timers.schedule(key, _NEXT_TURN_MS, step)


class TargetRecords(Protocol):
    """The records of a target assignment: a kind of groups has a module of them."""

    def target_member(self, group_id: str, member_id: str, target: Any, /) -> CoordinatorRecord:
        """Return the record of what one member should have."""

    def target_epoch(self, group_id: str, epoch: int, timestamp_ms: int, /) -> CoordinatorRecord:
        """Return the record of the assignment epoch."""


def write_target(
    groups: KindOfGroups[Any, Any],
    group: Any,
    steps: Steps[Mapping[str, Any]],
    records: TargetRecords,
) -> Slices[None]:
    """Compute the target of a group at its present epoch, and write it.

    The assignment epoch is not written where a member of the target has left since: the target is
    incomplete then. Nothing is written of a group that was removed. The assignment has the time of
    its begin: the assignment interval does not grow by the time that the slices take.
    """
    group_id, epoch, begin_ms = group.group_id, group.epoch, groups.clock.now_ms()

    def is_removed() -> bool:
        return groups.find(group_id) is not group

    target = yield from without_records(steps)
    is_complete = True
    names = iter(target)
    while part := list(islice(names, SLICE)):
        if is_removed():
            return
        found = []
        for name in part:
            is_complete &= name in group.members
            if name in group.members and group.target.get(name) != target[name]:
                found.append(records.target_member(group_id, name, target[name]))
        yield found
    if is_removed():
        return  # a record of it would bring the group back
    if is_complete or group.epoch > epoch:
        yield [records.target_epoch(group_id, epoch, begin_ms)]
