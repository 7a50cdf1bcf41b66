"""Heartbeat and LeaveGroup for classic groups.

Kafka: GroupMetadataManager.{classicGroupHeartbeatToClassicGroup, classicGroupLeaveToClassicGroup}.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.coordinator.group.classic import rebalance
from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.group.classic.groups import heartbeat_key
from ottla.coordinator.runtime.result import Result
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.groups import ClassicGroups

    Identity = LeaveGroupRequest.MemberIdentity

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
        found = None if instance_id is None else group.static_members.get(instance_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member_id = found
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
