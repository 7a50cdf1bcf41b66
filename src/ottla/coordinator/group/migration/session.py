"""SyncGroup, Heartbeat and LeaveGroup of members that use the classic protocol in consumer groups.

Kafka: GroupMetadataManager.{classicGroupSyncToConsumerGroup, classicGroupHeartbeatToConsumerGroup,
classicGroupLeaveToConsumerGroup}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer.member import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    without_epochs,
)
from ottla.coordinator.group.consumer.validation import static_member
from ottla.coordinator.group.group_kind import MemberTimer
from ottla.coordinator.group.migration import embedded
from ottla.coordinator.runtime import Result
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.groups import Groups
    from ottla.purgatory.pending import Pending


def sync(
    groups: Groups,
    group: ConsumerGroup,
    request: SyncGroupRequest,
    answer: Pending[SyncGroupResponse],
) -> Result[None]:
    """Return the member's assignment when it is committed."""
    member, classic = _member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    if request.protocol_type not in (None, "consumer") or request.protocol_name not in (
        None,
        classic.protocol_name,
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    consumer, group_id = groups.consumer, group.group_id
    is_behind = group.assignment_epoch > member.member_epoch
    if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
        consumer.await_join(group_id, member)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    owned = without_epochs(member.assigned)
    assignment = embedded.write_assignment(consumer.topics, owned, classic.protocols[0][1])

    def on_append(error: KafkaError | None) -> None:
        if error is not None:
            return
        consumer.cancel(MemberTimer.SYNC, group_id, member.member_id)
        session_ms = classic.session_timeout_ms
        consumer.start_session(group_id, member.member_id, session_ms)
        answer.complete(
            SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=assignment,
            )
        )

    return Result(None, [], on_append)


def heartbeat(
    groups: Groups, group: ConsumerGroup, request: HeartbeatRequest
) -> Result[HeartbeatResponse]:
    """Restart the session; REBALANCE_IN_PROGRESS where the member must rejoin.

    It must where there is a new assignment, where it has to give up partitions, and where the
    partitions for which it waits are free.
    """
    member, classic = _member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    group_id, session_ms = group.group_id, classic.session_timeout_ms
    groups.consumer.start_session(group_id, member.member_id, session_ms)
    must_rejoin = (
        member.member_epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (
            member.state is MemberState.UNRELEASED_PARTITIONS
            and not group.waits_for_partitions(member)
        )
    )
    if must_rejoin:
        groups.consumer.await_join(group_id, member)
        return Result(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    return Result(HeartbeatResponse())


def leave(
    groups: Groups, group: ConsumerGroup, request: LeaveGroupRequest
) -> Result[LeaveGroupResponse]:
    """Remove members of either protocol by member id or instance id."""
    leaving: dict[str, ConsumerMember] = {}
    answers = []
    for identity in request.members:
        answer = LeaveGroupResponse.MemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id
        )
        try:
            member = _leaving(group, identity)
            leaving[member.member_id] = member
        except KafkaError as error:
            answer.error_code = error.code
        answers.append(answer)
    response = LeaveGroupResponse(members=answers)
    return groups.consumer.fence(group, tuple(leaving.values()), response)


def _leaving(group: ConsumerGroup, identity: LeaveGroupRequest.MemberIdentity) -> ConsumerMember:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    if identity.member_id:
        return static_member(group, identity.member_id, instance_id)
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMetadata]:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = static_member(group, member_id, instance_id)
    if member.classic is None:
        text = f"Member {member.member_id} does not use the classic protocol."
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
    return member, member.classic


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if generation_id != member.member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
