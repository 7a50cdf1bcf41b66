"""The session of a member, the time within which it must give up tasks, and the initial delay.

Kafka: GroupMetadataManager.{scheduleStreamsGroupSessionTimeout,
scheduleStreamsGroupRebalanceTimeout, computeDelayedTargetAssignment}.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.coordinator.group.streams.groups import initial_delay_key, rebalance_key, session_key
from ottla.coordinator.group.streams.leave import remove_member
from ottla.coordinator.group.streams.member import MemberState, StreamsMember
from ottla.coordinator.group.streams.target import Assignment
from ottla.coordinator.runtime.result import Result, empty_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.coordinator.group.streams.groups import StreamsGroups

log = logging.getLogger("ottla.groups")
_RETRY_MS = 1000


def follow(
    groups: StreamsGroups, group_id: str, member: StreamsMember, *, has_moved: bool = True
) -> None:
    """Restart the session; start the revocation's time, or end it, where the member has moved."""
    _start_session(groups, group_id, member.member_id)
    if not has_moved:
        return
    key = rebalance_key(group_id, member.member_id)
    if member.state is not MemberState.UNREVOKED_TASKS:
        groups.timers.cancel(key)
        return
    epoch = member.member_epoch
    groups.timers.schedule(
        key,
        member.rebalance_timeout_ms,
        lambda: _expire_revocation(groups, group_id, member.member_id, epoch),
        retry_ms=_RETRY_MS,
    )


def _start_session(groups: StreamsGroups, group_id: str, member_id: str) -> None:
    """Remove the member unless another heartbeat comes within its session."""
    groups.timers.schedule(
        session_key(group_id, member_id),
        groups.settings(group_id).session_timeout_ms,
        lambda: _fence(groups, group_id, member_id, "the member session expired."),
        retry_ms=_RETRY_MS,
    )


def start_all(groups: StreamsGroups) -> Iterator[None]:
    """Start full sessions, and times of revocation, after the log was loaded."""
    for group_id, group in list(groups.by_id.items()):
        for member_id in list(group.members):
            member = group.members.get(member_id)
            if member is not None:
                follow(groups, group_id, member)
            yield


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


def _expire_revocation(
    groups: StreamsGroups, group_id: str, member_id: str, epoch: int
) -> Result[None]:
    group = groups.find(group_id)
    member: StreamsMember | None = None if group is None else group.members.get(member_id)
    if member is None or member.member_epoch != epoch:
        return empty_result()
    reason = "the member failed to transition from epoch within its rebalance timeout."
    return _fence(groups, group_id, member_id, reason)


def _fence(groups: StreamsGroups, group_id: str, member_id: str, reason: str) -> Result[None]:
    group = groups.find(group_id)
    member: StreamsMember | None = None if group is None else group.members.get(member_id)
    if group is None or member is None:
        return empty_result()
    log.info(
        "member %s of streams group %s is fenced: %s",
        member_id,
        group_id,
        reason,
        extra={"event": "member.fenced"},
    )
    return Result(None, remove_member(groups, group, member))
