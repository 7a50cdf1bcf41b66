"""Replacement of a static member that rejoins without its member id (KIP-345).

Kafka: GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.classic import rebalance, records
from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.runtime.log_errors import append_error
from ottla.coordinator.runtime.result import Result

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.groups import ClassicGroups
    from ottla.coordinator.group.classic.join_call import Join
    from ottla.coordinator.group.classic.member import ClassicMember
    from ottla.errors import KafkaError

log = logging.getLogger("ottla.groups")
SKIP_ASSIGNMENT_VERSION: Final = 9
"""The first version with a field that lets the leader skip the assignment (KIP-814)."""


def replace_static_member(
    groups: ClassicGroups, group: ClassicGroup, call: Join, ids: tuple[str, str]
) -> Result[None]:
    """Replace the first member id by the second.

    In a Stable group whose protocol does not change there is no rebalance: the new id is written
    to the log and the member keeps its assignment.
    """
    old_id, new_id = ids
    instance_id = call.request.group_instance_id
    assert instance_id is not None
    assert not group.is_in(ClassicState.EMPTY, ClassicState.DEAD)
    old_leader = group.leader_id
    member = group.replace_static_member(instance_id, old_id, new_id)
    text = "member %s of group %s fenced: %s joined with the same group.instance.id %s"
    log.info(text, old_id, group.group_id, new_id, instance_id, extra={"event": "member.fenced"})
    rebalance.reschedule(groups, group, member)
    before = member.protocols, (member.rebalance_timeout_ms, member.session_timeout_ms)
    group.update(member, call.protocols, call.timeouts_ms, call.answer)
    if group.is_in(ClassicState.STABLE):
        if group.select_protocol() != group.protocol_name:
            return rebalance.prepare_or_complete(groups, group)

        def on_append(error: KafkaError | None) -> None:
            if error is None:
                _complete_replacement(group, call, member, old_leader)
            else:
                _revert_replacement(groups, group, call, (old_id, member), before)
                _refuse(group, call, old_leader, error)

        assignments = {m.member_id: m.assignment for m in group.members.values()}
        return Result(None, [records.group_metadata(group, assignments)], on_append)
    if group.is_in(ClassicState.COMPLETING_REBALANCE):
        return rebalance.prepare_rebalance(groups, group)
    return rebalance.maybe_complete_join_phase(groups, group)


def _complete_replacement(
    group: ClassicGroup, call: Join, member: ClassicMember, old_leader: str | None
) -> None:
    """Respond with the unchanged generation; a leader must not compute an assignment.

    Before version 9 the response names the old leader's id, so that the new member does not
    consider itself the leader.
    """
    if member.awaiting_join is not call.answer:
        return
    response = group.join_success(member.member_id)
    if call.context.api_version >= SKIP_ASSIGNMENT_VERSION:
        if group.is_leader(member.member_id):
            response.members = group.described_members()
            response.skip_assignment = True
    else:
        response.leader = old_leader or ""
    group.complete_join(member, response)


def _revert_replacement(
    groups: ClassicGroups,
    group: ClassicGroup,
    call: Join,
    old: tuple[str, ClassicMember],
    before: tuple[tuple[tuple[str, bytes], ...], tuple[int, int]],
) -> None:
    old_id, member = old
    instance_id = member.group_instance_id
    if instance_id is None or group.members.get(member.member_id) is not member:
        return
    if member.awaiting_join is not call.answer:
        return  # replaced or rejoined since then: the newer state counts
    group.update(member, before[0], before[1], None)
    group.replace_static_member(instance_id, member.member_id, old_id)
    rebalance.reschedule(groups, group, member)


def _refuse(group: ClassicGroup, call: Join, old_leader: str | None, error: KafkaError) -> None:
    response = group.join_success("")
    response.leader = old_leader or ""
    response.error_code = append_error(error.code)
    call.answer.complete(response)
