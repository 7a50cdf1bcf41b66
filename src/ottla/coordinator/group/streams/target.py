"""The target assignment of a group: what each member should run in the end.

Kafka: org.apache.kafka.coordinator.group.streams.TargetAssignmentBuilder,
GroupMetadataManager.{maybeUpdateStreamsTargetAssignment, computeDelayedTargetAssignment}
(KIP-1071, KIP-1263).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group import slices
from ottla.coordinator.group.slices import SLICE, is_due
from ottla.coordinator.group.streams.assignors import sticky
from ottla.coordinator.group.streams.assignors.sticky import (
    MemberSpec,
    StreamsAssignorInput,
    SubtopologySpec,
)
from ottla.coordinator.group.streams.group import Tasks
from ottla.coordinator.runtime.shard import Result, empty_result
from ottla.purgatory.work import finish

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from ottla.coordinator.group.slices import Slices, Steps
    from ottla.coordinator.group.streams.configuration import ConfiguredTopology
    from ottla.coordinator.group.streams.group import StreamsGroup, StreamsMember
    from ottla.coordinator.group.streams.kind import StreamsGroups
    from ottla.coordinator.runtime import CoordinatorRecord

STANDBY_REPLICAS: Final = "num.standby.replicas"
_INITIAL_DELAY: Final = "Assignment delayed due to the configured initial rebalance delay."
_COMPUTED: Final = "Assignment delayed because that of a large group takes time."
_INTERVAL: Final = "Assignment delayed due to the configured assignment interval."


@dataclass(frozen=True, slots=True)
class Target:
    """The assignment epoch and target of one member; why a new one is not computed yet."""

    epoch: int
    tasks: Tasks
    delay_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a target assignment is computed from; member is the changed one."""

    groups: StreamsGroups
    group: StreamsGroup
    group_epoch: int
    topology: ConfiguredTopology
    configs: Mapping[str, str]
    member: StreamsMember | None = None

    def update(self, output: list[CoordinatorRecord]) -> Target:
        """Return the target of the member; computed again, with records, where it is due."""
        group, groups = self.group, self.groups
        is_first = not group.assignment_timestamp_ms
        is_computed = is_first and _key(group.group_id) in groups.timers
        if is_computed or initial_delay_key(group.group_id) in groups.timers:
            return Target(group.assignment_epoch, Tasks(), _INITIAL_DELAY)
        last = Target(group.assignment_epoch, self._last_tasks())
        if group.assignment_epoch >= self.group_epoch:
            return last
        interval_ms = groups.settings(group.group_id).assignment_interval_ms
        if not is_due(group.assignment_timestamp_ms, interval_ms, groups.clock.now_ms()):
            return Target(last.epoch, last.tasks, _INTERVAL)
        if slices.is_large(group) and (group.assignment_timestamp_ms or self.member is None):
            groups.timers.write_all(_key(group.group_id), self._in_slices())
            return Target(last.epoch, last.tasks, _COMPUTED)
        members: dict[str, StreamsMember] = dict(group.members)
        if self.member is not None:
            members[self.member.member_id] = self.member
        target = finish(self._compute(members))
        output += groups.target_records(group, target, self.group_epoch)
        own = Tasks() if self.member is None else target[self.member.member_id]
        return Target(self.group_epoch, own)

    def _in_slices(self) -> Slices[None]:
        group, groups = self.group, self.groups
        is_stale = group.epoch != self.group_epoch or group.epoch <= group.assignment_epoch
        if groups.find(group.group_id) is not group or is_stale:
            return
        steps = self._compute(dict(group.members))
        yield from groups.write_target(group, steps)

    def _last_tasks(self) -> Tasks:
        found: Tasks | None = None
        if self.member is not None:
            found = self.group.target.get(self.member.member_id)
        return found or Tasks()

    def _compute(self, members: Mapping[str, StreamsMember]) -> Steps[dict[str, Tasks]]:
        if not self.topology.is_ready or self.topology.subtopologies is None:
            return {member_id: Tasks() for member_id in members}
        specs = {}
        for position, (member_id, one) in enumerate(members.items()):
            if position % SLICE == SLICE - 1:
                yield
            tasks = self.group.target.get(member_id) or Tasks()
            specs[member_id] = MemberSpec(one.process_id, tasks)
        subtopologies = {
            key: SubtopologySpec(one.task_count, bool(one.changelogs))
            for key, one in self.topology.subtopologies.items()
        }
        replicas = int(self.configs.get(STANDBY_REPLICAS, "0"))
        return (yield from sticky.assign(StreamsAssignorInput(specs, subtopologies, replicas)))


def initial_delay_key(group_id: str) -> Hashable:
    """Return the key of the timer that delays the first assignment."""
    return "streams-initial-rebalance", group_id


def delay_first_assignment(groups: StreamsGroups, group_id: str) -> None:
    """Wait for more members before the tasks of an empty group are assigned."""
    delay_ms = groups.settings(group_id).initial_rebalance_delay_ms
    key = initial_delay_key(group_id)
    if delay_ms > 0 and key not in groups.timers:
        groups.timers.schedule(key, delay_ms, lambda: _assign(groups, group_id))


def _assign(groups: StreamsGroups, group_id: str) -> Result[None]:
    group = groups.find(group_id)
    if group is None or group.is_empty or group.configured is None:
        return empty_result()
    result = Result(None)
    Assignment(groups, group, group.epoch, group.configured, group.assignment_configs).update(
        result.records
    )
    return result


def _key(group_id: str) -> Hashable:
    return "streams-target", group_id
