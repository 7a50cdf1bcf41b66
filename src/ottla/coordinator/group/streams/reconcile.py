"""One step of a member towards its target: give up first, then take what others have given up.

Kafka: org.apache.kafka.coordinator.group.streams.CurrentAssignmentBuilder,
GroupMetadataManager.maybeReconcile.

An active task waits until no process runs it, and until the own process has given up its standby or
warm-up copy; a copy waits only for the own process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.coordinator.group.streams.member import StreamsMemberState
from ottla.coordinator.group.streams.tasks import AssignedTasks, TaskMap
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.streams.group import StreamsGroup
    from ottla.coordinator.group.streams.member import StreamsMember
    from ottla.coordinator.group.streams.tasks import EpochMap, Tasks

_UNKNOWN_STATE = (
    "The streams group member is in a unknown state. "
    "The member must abandon all its tasks and rejoin."
)


@dataclass(frozen=True, slots=True)
class StreamsReconciliation:
    """A step of a member of a group; owned are the tasks it reports, None where it reports none."""

    group: StreamsGroup
    member: StreamsMember
    target_epoch: int
    target: Tasks
    owned: Tasks | None

    def next_member(self) -> StreamsMember:
        """Return the member after the step: itself if there is nothing to do."""
        member = self.member
        if member.is_reconciled_to(self.target_epoch):
            return member
        if member.state is StreamsMemberState.UNKNOWN:
            if self.owned is None or not self.owned.is_empty:
                raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, _UNKNOWN_STATE)
            return self._towards_target(self.target_epoch)
        if member.state is StreamsMemberState.UNREVOKED_TASKS:
            if self.owned is None or self.owned.has_any_of(member.pending_revocation):
                return member
            return self._towards_target(member.member_epoch + 1)
        return self._towards_target(member.member_epoch)

    def _towards_target(self, epoch: int) -> StreamsMember:
        member, assigned = self.member, self.member.assigned
        active = _active_difference(assigned.active, self.target.active)
        standby = _difference(assigned.standby, self.target.standby)
        warmup = _difference(assigned.warmup, self.target.warmup)
        kept = AssignedTasks(active[0], standby[0], warmup[0])
        revoked = AssignedTasks(active[1], standby[1], warmup[1])
        if not revoked.is_empty and (self.owned is None or self.owned.has_any_of(revoked)):
            return member.moved(StreamsMemberState.UNREVOKED_TASKS, epoch, kept, revoked)
        free_active, waits_active = self._free(active[2], is_active=True)
        free_standby, waits_standby = self._free(standby[2], is_active=False)
        free_warmup, waits_warmup = self._free(warmup[2], is_active=False)
        new = AssignedTasks(
            {
                key: dict.fromkeys(partitions, self.target_epoch)
                for key, partitions in free_active.items()
            },
            free_standby,
            free_warmup,
        )
        is_waiting = waits_active or waits_standby or waits_warmup
        state = StreamsMemberState.UNRELEASED_TASKS if is_waiting else StreamsMemberState.STABLE
        return member.moved(state, self.target_epoch, kept.merge(new), AssignedTasks())

    def _free(self, tasks: TaskMap, *, is_active: bool) -> tuple[TaskMap, bool]:
        """Return the tasks that the member may take now, and whether it has to wait for others."""
        free = {
            key: tuple(
                index for index in partitions if self._is_free((key, index), is_active=is_active)
            )
            for key, partitions in tasks.items()
        }
        is_waiting = any(len(free[key]) < len(tasks[key]) for key in tasks)
        return {key: partitions for key, partitions in free.items() if partitions}, is_waiting

    def _is_free(self, task: tuple[str, int], *, is_active: bool) -> bool:
        group = self.group
        owners = group.active_owners.get(task, ())
        if is_active and owners:
            return False
        others = (*group.standby_owners.get(task, ()), *group.warmup_owners.get(task, ()))
        if not is_active:
            others = (*owners, *others)
        return not group.is_in_process(others, self.member.process_id)


def _active_difference(current: EpochMap, target: TaskMap) -> tuple[EpochMap, EpochMap, TaskMap]:
    """Return the tasks to keep, to give up and to take."""
    kept, revoked = {}, {}
    for key, epochs in current.items():
        targeted = frozenset(target.get(key, ()))
        kept[key] = {index: epoch for index, epoch in epochs.items() if index in targeted}
        revoked[key] = {index: epoch for index, epoch in epochs.items() if index not in targeted}
    return _filled(kept), _filled(revoked), _new(current, target)


def _difference(current: TaskMap, target: TaskMap) -> tuple[TaskMap, TaskMap, TaskMap]:
    kept, revoked = {}, {}
    for key, partitions in current.items():
        targeted = frozenset(target.get(key, ()))
        kept[key] = tuple(index for index in partitions if index in targeted)
        revoked[key] = tuple(index for index in partitions if index not in targeted)
    return (
        {key: value for key, value in kept.items() if value},
        {key: value for key, value in revoked.items() if value},
        _new(current, target),
    )


def _filled(tasks: dict[str, dict[int, int]]) -> EpochMap:
    return {key: value for key, value in tasks.items() if value}


def _new(current: TaskMap | EpochMap, target: TaskMap) -> TaskMap:
    new = {
        key: tuple(index for index in partitions if index not in current.get(key, ()))
        for key, partitions in target.items()
    }
    return {key: partitions for key, partitions in new.items() if partitions}
