"""The target assignment of a group: what each member should run in the end.

Kafka: org.apache.kafka.coordinator.group.streams.TargetAssignmentBuilder,
GroupMetadataManager.maybeUpdateStreamsTargetAssignment (KIP-1071, KIP-1263).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group import slices
from ottla.coordinator.group.slices import SLICE, is_due
from ottla.coordinator.group.streams import records
from ottla.coordinator.group.streams.assignors import sticky
from ottla.coordinator.group.streams.assignors.spec import (
    MemberSpec,
    StreamsAssignorInput,
    SubtopologySpec,
)
from ottla.coordinator.group.streams.groups import initial_delay_key
from ottla.coordinator.group.streams.tasks import Tasks
from ottla.coordinator.runtime.java_hash import in_hash_map_order

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from ottla.coordinator.group.slices import Slices, Steps
    from ottla.coordinator.group.streams.configuration import ConfiguredTopology
    from ottla.coordinator.group.streams.group import StreamsGroup
    from ottla.coordinator.group.streams.groups import StreamsGroups
    from ottla.coordinator.group.streams.member import StreamsMember
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
        now_ms = groups.clock.now_ms()
        interval_ms = groups.settings(group.group_id).assignment_interval_ms
        if not is_due(group.assignment_timestamp_ms, interval_ms, now_ms):
            return Target(last.epoch, last.tasks, _INTERVAL)
        if slices.is_large(group) and (group.assignment_timestamp_ms or self.member is None):
            slices.run(groups.timers, _key(group.group_id), self._in_slices())
            return Target(last.epoch, last.tasks, _COMPUTED)
        members: dict[str, StreamsMember] = dict(group.members)
        if self.member is not None:
            members[self.member.member_id] = self.member
        target = slices.finish(self._compute(members))
        output += [
            records.target_member(group.group_id, member_id, target[member_id])
            for member_id in in_hash_map_order(target)
            if group.target.get(member_id) != target[member_id]
        ]
        output.append(records.target_epoch(group.group_id, self.group_epoch, now_ms))
        own = Tasks() if self.member is None else target[self.member.member_id]
        return Target(self.group_epoch, own)

    def _in_slices(self) -> Slices[None]:
        group, groups = self.group, self.groups
        is_stale = group.epoch != self.group_epoch or group.epoch <= group.assignment_epoch
        if groups.find(group.group_id) is not group or is_stale:
            return
        steps = self._compute(dict(group.members))
        yield from slices.write_target(groups, group, steps, records)

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


def _key(group_id: str) -> Hashable:
    return "streams-target", group_id
