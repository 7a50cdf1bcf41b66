"""SyncGroup, Heartbeat and LeaveGroup for classic groups.

Kafka: GroupMetadataManager.{classicGroupSyncToClassicGroup, classicGroupHeartbeatToClassicGroup,
classicGroupLeaveToClassicGroup}.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.coordinator.group.classic import group as records
from ottla.coordinator.group.classic import rebalance
from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.group.classic.groups import heartbeat_key
from ottla.coordinator.group.responses import sync_error
from ottla.coordinator.runtime.log import append_error
from ottla.coordinator.runtime.shard import Result, empty_result
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.groups import ClassicGroups
    from ottla.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
    from ottla.purgatory.pending import Pending

    Identity = LeaveGroupRequest.MemberIdentity


def sync(
    groups: ClassicGroups, request: SyncGroupRequest, answer: Pending[SyncGroupResponse]
) -> Result[None]:
    """Return the assignment: at once in a Stable group, else when the leader's is committed."""
    try:
        group = _validate(groups, request)
    except KafkaError as error:
        answer.complete(sync_error(error.code))
        return empty_result()
    member = group.members[request.member_id]
    rebalance.note_sync(groups, group, request.member_id)
    if group.is_in(ClassicState.STABLE):
        answer.complete(group.sync_success(member.assignment))
        return empty_result()
    group.complete_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    member.awaiting_sync = answer
    if group.is_leader(member.member_id):
        return _write_assignments(groups, group, request)
    return empty_result()


def _validate(groups: ClassicGroups, request: SyncGroupRequest) -> ClassicGroup:
    group = groups.find(request.group_id)
    if group is None or group.is_in(ClassicState.EMPTY):
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    group.validate_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if _differs(request.protocol_type, group.protocol_type) or _differs(
        request.protocol_name, group.protocol_name
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.is_in(ClassicState.PREPARING_REBALANCE):
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    return group


def _differs(said: str | None, actual: str | None) -> bool:
    return said is not None and actual is not None and said != actual


def _write_assignments(
    groups: ClassicGroups, group: ClassicGroup, request: SyncGroupRequest
) -> Result[None]:
    assignments = {part.member_id: part.assignment for part in request.assignments}
    for member_id in group.members:
        assignments.setdefault(member_id, b"")

    def on_append(error: KafkaError | None) -> None:
        """Return the committed assignments, unless another rebalance has started since."""
        is_current = group.is_in(ClassicState.COMPLETING_REBALANCE)
        if not is_current or group.generation_id != request.generation_id:
            return
        if error is None:
            rebalance.set_assignments(groups, group, assignments)
            group.move_to(ClassicState.STABLE, groups.clock.now_ms())
        else:
            rebalance.reset_assignments(groups, group, append_error(error.code))
            rebalance.prepare_or_complete(groups, group)

    return Result(None, [records.group_metadata(group, assignments)], on_append)


log = logging.getLogger("ottla.groups")


def heartbeat(
    groups: ClassicGroups, group: ClassicGroup, request: HeartbeatRequest
) -> Result[HeartbeatResponse]:
    """Restart a member's session; REBALANCE_IN_PROGRESS when it has to rejoin."""
    group.validate_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if group.is_in(ClassicState.EMPTY):
        return Result(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    rebalance.reschedule(groups, group, group.members[request.member_id])
    is_preparing = group.is_in(ClassicState.PREPARING_REBALANCE)
    code = ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE
    return Result(HeartbeatResponse(error_code=code))


def leave(
    groups: ClassicGroups, group: ClassicGroup, request: LeaveGroupRequest
) -> Result[LeaveGroupResponse]:
    """Remove members by member id or instance id; the others rebalance once."""
    answers = []
    for identity in request.members:
        answer = LeaveGroupResponse.MemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id
        )
        try:
            _leave_one(groups, group, identity)
        except KafkaError as error:
            answer.error_code = error.code
        answers.append(answer)
    response = LeaveGroupResponse(members=answers)
    if all(answer.error_code for answer in answers):
        return Result(response)
    if group.is_in(ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
        after = rebalance.prepare_or_complete(groups, group)
    else:
        after = rebalance.maybe_complete_join_phase(groups, group)
    return Result(response, after.records, after.on_append)


def _leave_one(groups: ClassicGroups, group: ClassicGroup, identity: Identity) -> None:
    member_id = identity.member_id
    if not member_id:
        instance_id = identity.group_instance_id
        static_id = None if instance_id is None else group.static_members.get(instance_id)
        if static_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member_id = static_id
    elif member_id in group.pending_join:
        group.remove(member_id)
        groups.timers.cancel(heartbeat_key(group.group_id, member_id))
        return
    else:
        group.validate_member(member_id, identity.group_instance_id)
    extra = {"event": "member.left"}
    log.info("member %s leaves group %s", member_id, group.group_id, extra=extra)
    groups.timers.cancel(heartbeat_key(group.group_id, member_id))
    group.remove(member_id)
