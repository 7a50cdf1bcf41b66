"""The session of a member, and the time within which it must give up partitions.

Kafka: GroupMetadataManager.{scheduleConsumerGroupSessionTimeout,
scheduleConsumerGroupRebalanceTimeout, cancelTimers}.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer.groups import (
    join_key,
    rebalance_key,
    session_key,
    sync_key,
)
from ottla.coordinator.group.consumer.leave import fence
from ottla.coordinator.group.consumer.member import ConsumerMember, MemberState
from ottla.coordinator.runtime.result import Result, empty_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.coordinator.group.consumer.groups import ConsumerGroups

log = logging.getLogger("ottla.groups")
_RETRY_MS = 1000


def follow(
    groups: ConsumerGroups, group_id: str, member: ConsumerMember, *, has_moved: bool = True
) -> None:
    """Restart the session; start the revocation's time, or end it, where the member has moved."""
    start_session(groups, group_id, member.member_id)
    if not has_moved:
        return
    key = rebalance_key(group_id, member.member_id)
    if member.state is not MemberState.UNREVOKED_PARTITIONS:
        groups.timers.cancel(key)
        return
    epoch = member.member_epoch
    groups.timers.schedule(
        key,
        member.rebalance_timeout_ms,
        lambda: _expire_revocation(groups, group_id, member.member_id, epoch),
        retry_ms=_RETRY_MS,
    )


def start_session(
    groups: ConsumerGroups, group_id: str, member_id: str, timeout_ms: int | None = None
) -> None:
    """Fence the member unless another heartbeat comes within its session."""
    if timeout_ms is None:
        timeout_ms = groups.settings(group_id).session_timeout_ms
    groups.timers.schedule(
        session_key(group_id, member_id),
        timeout_ms,
        lambda: _fence(groups, group_id, member_id, "the member session expired."),
        retry_ms=_RETRY_MS,
    )


def await_join(groups: ConsumerGroups, group_id: str, member: ConsumerMember) -> None:
    """Fence a member of the classic protocol unless it rejoins within its rebalance timeout."""
    key = join_key(group_id, member.member_id)
    if key in groups.timers:
        return
    reason = "the classic member failed to join within the rebalance timeout."
    groups.timers.schedule(
        key,
        member.rebalance_timeout_ms,
        lambda: _fence(groups, group_id, member.member_id, reason),
        retry_ms=_RETRY_MS,
    )


def await_sync(groups: ConsumerGroups, group_id: str, member_id: str, timeout_ms: int) -> None:
    """Fence a member of the classic protocol unless it syncs within its rebalance timeout."""
    groups.timers.schedule(
        sync_key(group_id, member_id),
        timeout_ms,
        lambda: _fence(groups, group_id, member_id, "the member failed to sync within timeout."),
        retry_ms=_RETRY_MS,
    )


def start_all(groups: ConsumerGroups) -> Iterator[None]:
    """Start full sessions, and times of revocation, after the log was loaded."""
    for group_id, group in list(groups.by_id.items()):
        for member_id in list(group.members):
            member = group.members.get(member_id)
            if member is not None:
                follow(groups, group_id, member)
            yield


def _expire_revocation(
    groups: ConsumerGroups, group_id: str, member_id: str, epoch: int
) -> Result[None]:
    group = groups.find(group_id)
    member: ConsumerMember | None = None if group is None else group.members.get(member_id)
    if (
        member is None
        or member.member_epoch != epoch
        or member.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        return empty_result()
    reason = "the member failed to transition from epoch within its rebalance timeout."
    return _fence(groups, group_id, member_id, reason)


def _fence(groups: ConsumerGroups, group_id: str, member_id: str, reason: str) -> Result[None]:
    group = groups.find(group_id)
    member: ConsumerMember | None = None if group is None else group.members.get(member_id)
    if group is None or member is None:
        return empty_result()
    log.info(
        "member %s of group %s is fenced: %s",
        member_id,
        group_id,
        reason,
        extra={"event": "member.fenced"},
    )
    return fence(groups, group, [member], None)
