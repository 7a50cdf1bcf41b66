"""Session timeouts of a classic group's members, and their removal.

Kafka: GroupMetadataManager.{expireClassicGroupMemberHeartbeat, removeMemberAndUpdateClassicGroup}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.classic import rebalance
from ottla.coordinator.group.classic.group import ClassicState
from ottla.coordinator.runtime.result import Result, empty_result

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.group import ClassicGroup
    from ottla.coordinator.group.classic.groups import ClassicGroups
    from ottla.coordinator.group.classic.member import ClassicMember


def reschedule(
    groups: ClassicGroups,
    group: ClassicGroup,
    member: ClassicMember,
    delay_ms: int | None = None,
) -> None:
    """Restart the member's session, for delay_ms or by default its session timeout."""
    timeout_ms = member.session_timeout_ms if delay_ms is None else delay_ms
    groups.schedule_heartbeat(group, member.member_id, timeout_ms, expire)


def expire(groups: ClassicGroups, group_id: str, member_id: str) -> Result[None]:
    """Remove a member, or a pending one, whose session has expired."""
    group = groups.find(group_id)
    if group is None:
        return empty_result()
    if member_id in group.pending_join:
        return remove_pending(groups, group, member_id)
    member = group.members.get(member_id)
    if member is None or member.has_satisfied_heartbeat:
        return empty_result()
    return remove_member(groups, group, member)


def remove_member(
    groups: ClassicGroups, group: ClassicGroup, member: ClassicMember
) -> Result[None]:
    """Remove a member; the others rebalance, or complete the join phase that waited for it."""
    group.remove(member.member_id)
    if group.is_in(ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
        return rebalance.prepare_or_complete(groups, group)
    return _complete_if_all_joined(groups, group)


def remove_pending(groups: ClassicGroups, group: ClassicGroup, member_id: str) -> Result[None]:
    """Remove a member that received an id and never joined with it."""
    group.remove(member_id)
    return _complete_if_all_joined(groups, group)


def _complete_if_all_joined(groups: ClassicGroups, group: ClassicGroup) -> Result[None]:
    if group.is_in(ClassicState.PREPARING_REBALANCE) and group.has_all_members_joined:
        return rebalance.complete_join_phase(groups, group)
    return empty_result()
