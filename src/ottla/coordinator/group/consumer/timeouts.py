"""The session of a member, and the time within which it must give up partitions.

Kafka: GroupMetadataManager.{scheduleConsumerGroupSessionTimeout,
scheduleConsumerGroupRebalanceTimeout, cancelTimers}.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer.leave import fence
from ottla.coordinator.group.consumer.member import ConsumerMember, MemberState
from ottla.coordinator.group.kinds import MemberTimer

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.runtime import Result


def follow(
    groups: ConsumerGroups, group_id: str, member: ConsumerMember, *, has_moved: bool = True
) -> None:
    """Restart the session; start the revocation's time, or end it, where the member has moved."""
    start_session(groups, group_id, member.member_id)
    if has_moved:
        is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
        remove = partial(_remove, groups)
        groups.follow_revocation(group_id, member, remove, is_revoking=is_revoking)


def start_session(
    groups: ConsumerGroups, group_id: str, member_id: str, timeout_ms: int | None = None
) -> None:
    """Fence the member unless another heartbeat comes within its session."""
    groups.start_session(group_id, member_id, partial(_remove, groups), timeout_ms)


def await_join(groups: ConsumerGroups, group_id: str, member: ConsumerMember) -> None:
    """Fence a member of the classic protocol unless it rejoins within its rebalance timeout."""
    if groups.expects(MemberTimer.JOIN, group_id, member.member_id):
        return
    reason = "the classic member failed to join within the rebalance timeout."
    timeout_ms = member.rebalance_timeout_ms
    what = MemberTimer.JOIN
    _await(groups, what, group_id, member.member_id, timeout_ms=timeout_ms, reason=reason)


def await_sync(groups: ConsumerGroups, group_id: str, member_id: str, timeout_ms: int) -> None:
    """Fence a member of the classic protocol unless it syncs within its rebalance timeout."""
    reason = "the member failed to sync within timeout."
    _await(groups, MemberTimer.SYNC, group_id, member_id, timeout_ms=timeout_ms, reason=reason)


def _await(
    groups: ConsumerGroups,
    what: MemberTimer,
    group_id: str,
    member_id: str,
    *,
    timeout_ms: int,
    reason: str,
) -> None:
    groups.expect(
        what,
        group_id,
        member_id,
        timeout_ms,
        lambda: groups.fence(group_id, member_id, reason, partial(_remove, groups)),
    )


def _remove(groups: ConsumerGroups, group: ConsumerGroup, member: ConsumerMember) -> Result[None]:
    return fence(groups, group, [member], None)
