"""JoinGroup for classic groups.

Kafka: GroupMetadataManager.{classicGroupJoinToClassicGroup, classicGroupJoinNewMember,
classicGroupJoinExistingMember, updateStaticMemberThenRebalanceOrCompleteJoin, …}.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.classic import group as records
from ottla.coordinator.group.classic import rebalance
from ottla.coordinator.group.classic.group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    size_of_protocols,
)
from ottla.coordinator.group.classic.groups import heartbeat_key, join_key
from ottla.coordinator.group.responses import join_error
from ottla.coordinator.runtime.log import append_error
from ottla.coordinator.runtime.shard import Result, empty_result
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.groups import ClassicGroups
    from ottla.coordinator.group.context import RequestContext
    from ottla.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
    from ottla.purgatory.pending import Pending


@dataclass(frozen=True, slots=True)
class Join:
    """A join in progress: the request, its context and the pending response."""

    request: JoinGroupRequest
    context: RequestContext
    answer: Pending[JoinGroupResponse]
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def timeouts_ms(self) -> tuple[int, int]:
        """Rebalance and session timeout; version 0 has only the latter."""
        session_ms = self.request.session_timeout_ms
        if self.context.api_version == 0:
            return session_ms, session_ms
        return self.request.rebalance_timeout_ms, session_ms

    def refuse(self, error: ErrorCode, member_id: str = "") -> Result[None]:
        """Complete the response with an error."""
        self.answer.complete(join_error(error, member_id))
        return empty_result()


def make_join(
    request: JoinGroupRequest, context: RequestContext, answer: Pending[JoinGroupResponse]
) -> Join:
    """Return the join of a request."""
    protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
    return Join(request, context, answer, protocols)


MAX_MEMBER_BYTES: Final = 1 << 20
"""Of a member's metadata: the largest record of __consumer_offsets, in which it must fit."""
MAX_MEMBERS_BYTES: Final = 16 << 20
"""Of the metadata of all members of a shard that are not small, but for the shares of groups."""
MAX_SHARED_BYTES: Final = 2 << 20
"""Of a group where others fill the shard: twice what its record can have."""
_SMALL_BYTES: Final = 4096
_MAX_STEM_LENGTH: Final = 1024
"""Characters of a client id in a member id, of which 10,000 may be handed out."""
NEEDS_MEMBER_ID_VERSION: Final = 4
"""The first version in which a dynamic member needs an id before it can join (KIP-394)."""


def join(groups: ClassicGroups, call: Join) -> Result[None]:
    """Add a member, or let it rejoin; the response is completed when the join phase ends."""
    request = call.request
    if not _fits(groups, call):
        return call.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, request.member_id)
    is_new_group = groups.find(request.group_id) is None
    if is_new_group and request.member_id:
        return call.refuse(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
    group = groups.get_or_create(request.group_id)
    if not _has_room(groups, group, request.member_id):
        group.remove(request.member_id)
        result = call.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif request.member_id:
        result = _join_known(groups, group, call)
    else:
        result = _join_unknown(groups, group, call)
    if is_new_group and not result.records:
        return _announce(groups, group, call)
    return result


def _announce(groups: ClassicGroups, group: ClassicGroup, call: Join) -> Result[None]:
    """Write the record of the new group; if that fails, the group is removed again."""

    def on_append(error: KafkaError | None) -> None:
        if error is None:
            return
        call.refuse(append_error(error.code))
        if group.group_id not in groups.table and groups.live.get(group.group_id) is group:
            del groups.live[group.group_id]
            for member_id in (*group.members, *group.pending_join):
                group.remove(member_id)
                groups.timers.cancel(heartbeat_key(group.group_id, member_id))
            groups.timers.cancel(join_key(group.group_id))

    return Result(None, [records.empty_group_metadata(group)], on_append)


def _has_room(groups: ClassicGroups, group: ClassicGroup, member_id: str) -> bool:
    """Whether group.max.size admits the member; members that have not rejoined do not count."""
    limit = groups.config.group_max_size
    member = group.members.get(member_id)
    if group.is_in(ClassicState.EMPTY, ClassicState.DEAD):
        return len(group.pending_join) < groups.config.max_pending_members
    if group.is_in(ClassicState.PREPARING_REBALANCE):
        is_counted = member is not None and member.awaiting_join is not None
        return is_counted or group.awaiting_join_count < limit
    return member is not None or len(group.members) < limit


def _fits(groups: ClassicGroups, call: Join) -> bool:
    """Whether there is memory for the member; small ones are bounded by their number.

    Refused clients give up for good, so that no group may shut out another: a member rejoins with
    as much as it has, and where others fill the shard a group may still have a share, which falls
    with the number of groups. All shares of n groups are less than MAX_SHARED_BYTES (1 + ln n).
    """
    size_bytes = size_of_protocols(call.protocols)
    if size_bytes <= _SMALL_BYTES:
        return True
    group = groups.find(call.request.group_id)
    known_bytes = 0 if group is None else _known_bytes(group, call)
    if size_bytes <= known_bytes:
        return True
    if size_bytes > MAX_MEMBER_BYTES:
        return False
    more_bytes = size_bytes - known_bytes
    if groups.member_bytes + more_bytes <= MAX_MEMBERS_BYTES:
        return True
    others = sum(
        other is not group and other.member_bytes > _SMALL_BYTES for other in groups.live.values()
    )
    of_group_bytes = more_bytes if group is None else group.member_bytes + more_bytes
    return of_group_bytes <= MAX_SHARED_BYTES // (others + 1)


def _known_bytes(group: ClassicGroup, call: Join) -> int:
    """Return the size of the metadata that the join replaces."""
    member_id = call.request.member_id
    if not member_id:
        member_id = group.static_members.get(call.request.group_instance_id or "", "")
    member = group.members.get(member_id)
    return 0 if member is None else member.metadata_bytes


def _join_unknown(groups: ClassicGroups, group: ClassicGroup, call: Join) -> Result[None]:
    request = call.request
    if not group.supports(request.protocol_type, call.protocols):
        return call.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    instance_id = request.group_instance_id
    stem = call.context.client_id if instance_id is None else instance_id
    stem = stem[:_MAX_STEM_LENGTH]
    member_id = f"{stem}-{groups.new_uuid()}"
    if instance_id is not None:
        old_id = group.static_members.get(instance_id)
        if old_id is not None:
            return _replace_static_member(groups, group, call, (old_id, member_id))
    elif call.context.api_version >= NEEDS_MEMBER_ID_VERSION:
        # Make the client rejoin with an id, so that lost responses leave no members (KIP-394).
        if len(group.pending_join) >= groups.config.max_pending_members:
            return call.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        group.pending_join[member_id] = None
        session_ms = call.request.session_timeout_ms
        groups.schedule_heartbeat(group, member_id, session_ms, rebalance.expire)
        return call.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    return _add(groups, group, call, member_id)


def _join_known(groups: ClassicGroups, group: ClassicGroup, call: Join) -> Result[None]:
    request = call.request
    member_id = request.member_id
    if not group.supports(request.protocol_type, call.protocols):
        return call.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    if member_id in group.pending_join:
        if request.group_instance_id is not None:  # only dynamic members receive ids
            return call.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
        return _add(groups, group, call, member_id)
    try:
        group.validate_member(member_id, request.group_instance_id)
    except KafkaError as error:
        answer = join_error(error.code, member_id)
        answer.protocol_name = None
        call.answer.complete(answer)
        return empty_result()
    return _rejoin(groups, group, call, group.members[member_id])


def _rejoin(
    groups: ClassicGroups, group: ClassicGroup, call: Join, member: ClassicMember
) -> Result[None]:
    is_unchanged = member.protocols == call.protocols
    is_leader = group.is_leader(member.member_id)
    if group.is_in(ClassicState.COMPLETING_REBALANCE) and is_unchanged:
        # the earlier response was lost: repeat it, nothing has changed
        response = group.join_success(member.member_id)
        if is_leader:
            response.members = group.described_members()
        call.answer.complete(response)
        return empty_result()
    if group.is_in(ClassicState.STABLE) and is_unchanged and not is_leader:
        call.answer.complete(group.join_success(member.member_id))
        return empty_result()
    if group.is_in(ClassicState.EMPTY, ClassicState.DEAD):
        return call.refuse(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)
    group.update(member, call.protocols, call.timeouts_ms, call.answer)
    return rebalance.prepare_or_complete(groups, group)


def _add(groups: ClassicGroups, group: ClassicGroup, call: Join, member_id: str) -> Result[None]:
    rebalance_ms, session_ms = call.timeouts_ms
    member = ClassicMember(
        member_id=member_id,
        group_instance_id=call.request.group_instance_id,
        client_id=call.context.client_id,
        client_host=call.context.client_host,
        rebalance_timeout_ms=rebalance_ms,
        session_timeout_ms=session_ms,
        protocol_type=call.request.protocol_type,
        protocols=call.protocols,
        is_new=True,
    )
    is_preparing = group.is_in(ClassicState.PREPARING_REBALANCE)
    if is_preparing and group.previous_state == ClassicState.EMPTY:
        group.new_member_added = True
    group.add(member, call.answer)
    rebalance.reschedule(groups, group, member, groups.config.new_member_join_timeout_ms)
    return rebalance.prepare_or_complete(groups, group)


_log = logging.getLogger("ottla.groups")
_SKIP_ASSIGNMENT_VERSION: Final = 9
"""The first version with a field that lets the leader skip the assignment (KIP-814)."""


def _replace_static_member(
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
    _log.info(text, old_id, group.group_id, new_id, instance_id, extra={"event": "member.fenced"})
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
    if call.context.api_version >= _SKIP_ASSIGNMENT_VERSION:
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
