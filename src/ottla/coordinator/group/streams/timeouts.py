"""The session of a member, the time within which it must give up tasks, and the initial delay.

Kafka: GroupMetadataManager.{scheduleStreamsGroupSessionTimeout,
scheduleStreamsGroupRebalanceTimeout, computeDelayedTargetAssignment}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.streams.groups import initial_delay_key
from ottla.coordinator.group.streams.leave import remove_member
from ottla.coordinator.group.streams.member import StreamsMember, StreamsMemberState
from ottla.coordinator.group.streams.target import Assignment
from ottla.coordinator.runtime.result import Result, empty_result

if TYPE_CHECKING:
    from ottla.coordinator.group.streams.group import StreamsGroup
    from ottla.coordinator.group.streams.groups import StreamsGroups


def follow(
    groups: StreamsGroups, group_id: str, member: StreamsMember, *, has_moved: bool = True
) -> None:
    """Restart the session; start the revocation's time, or end it, where the member has moved."""

    def remove(group: StreamsGroup, left: StreamsMember) -> Result[None]:
        return Result(None, remove_member(groups, group, left))

    groups.start_session(group_id, member.member_id, remove)
    if has_moved:
        is_revoking = member.state is StreamsMemberState.UNREVOKED_TASKS
        groups.follow_revocation(group_id, member, remove, is_revoking=is_revoking)


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
