"""Members of the classic protocol in consumer groups: join, sync, heartbeat, leave.

Kafka: GroupMetadataManager.{classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup,
classicGroupHeartbeatToConsumerGroup, classicGroupLeaveToConsumerGroup}.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.coordinator.group.classic.join import NEEDS_MEMBER_ID_VERSION
from ottla.coordinator.group.consumer import patterns
from ottla.coordinator.group.consumer.group import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    without_epochs,
)
from ottla.coordinator.group.consumer.heartbeat import check_size, static_member
from ottla.coordinator.group.consumer.reconcile import GroupChange
from ottla.coordinator.group.group_kind import MemberTimer, Target
from ottla.coordinator.group.migration import conversion
from ottla.coordinator.runtime import Result
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.apis.join_group import JoinGroupResponse
from ottla.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.join import Join
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.groups import Groups
    from ottla.protocol.records.consumer_protocol import ConsumerProtocolSubscription
    from ottla.purgatory.pending import Pending


def join(groups: Groups, group: ConsumerGroup, call: Join) -> Result[None]:
    """Add a member or let it rejoin; the response is completed when its records are committed."""
    request = call.request
    member_id = request.member_id or groups.consumer.new_member_id()
    check_size(group, member_id, groups.consumer.settings(group.group_id).max_size)
    if not group.supports(request.protocol_type, call.protocols):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_dynamic = request.group_instance_id is None
    needs_id = is_dynamic and call.context.api_version >= NEEDS_MEMBER_ID_VERSION
    if needs_id and not request.member_id:
        return call.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    try:
        subscription = conversion.read_subscription(call.protocols[0][1])
    except CorruptMessage as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    owned = conversion.by_topic_id(groups.consumer.topics, subscription.owned_partitions)
    change = GroupChange(groups.consumer, group, owned)
    member = _find_member(change, call, member_id)
    return _apply(groups, change, call, (member, _updated(member, call, subscription)))


def _find_member(change: GroupChange, call: Join, member_id: str) -> ConsumerMember:
    instance_id = call.request.group_instance_id
    known: ConsumerMember | None = change.group.members.get(member_id)
    if instance_id is None:
        return known or ConsumerMember(member_id)
    if call.request.member_id:
        return static_member(change.group, member_id, instance_id)
    existing = change.group.static_member(instance_id)
    if existing is None:
        return known or ConsumerMember(member_id)
    return change.replace_static(existing, member_id)


def _updated(
    member: ConsumerMember, call: Join, subscription: ConsumerProtocolSubscription
) -> ConsumerMember:
    request = call.request
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        subscribed_topics=tuple(sorted(dict.fromkeys(subscription.topics))),
        subscribed_regex="",
        client_id=call.context.client_id,
        client_host=call.context.client_host,
        classic=ClassicMetadata(request.session_timeout_ms, call.protocols),
    )


def _apply(
    groups: Groups, change: GroupChange, call: Join, members: tuple[ConsumerMember, ConsumerMember]
) -> Result[None]:
    member, updated = members
    consumer, group = groups.consumer, change.group
    has_changed = change.write_subscription(member, updated)
    has_new_pattern, _ = patterns.update(
        consumer,
        group,
        member,
        updated,
        change.records,
        may_describe=call.context.may_describe_topic,
    )
    has_changed |= has_new_pattern
    replaced = change.replaced
    if replaced is not None and conversion.is_allowed_with(groups, group, replaced):
        return _downgrade(groups, change, call, members, has_changed=has_changed)
    epoch = change.group_epoch(member, updated, has_changed=has_changed)
    target = consumer.update_target(group, epoch, updated, change.records)
    updated = change.reconcile(updated, target, has_changed=has_changed)
    group_id, request = group.group_id, call.request
    # not when its records are committed: that may be after the write's timeout; so Kafka keeps
    # members that nothing removes
    consumer.start_session(group_id, updated.member_id, request.session_timeout_ms)

    def on_append(error: KafkaError | None) -> None:
        if error is not None:
            return
        consumer.cancel(MemberTimer.JOIN, group_id, updated.member_id)
        consumer.await_sync(group_id, updated.member_id, request.rebalance_timeout_ms)
        call.answer.complete(_response(updated))

    return Result(None, change.records, on_append)


def _downgrade(
    groups: Groups,
    change: GroupChange,
    call: Join,
    members: tuple[ConsumerMember, ConsumerMember],
    *,
    has_changed: bool,
) -> Result[None]:
    """Let the member take the place of the last one of the consumer protocol."""
    member, updated = members
    group, replaced = change.group, change.replaced
    assert replaced is not None
    epoch = change.group_epoch(member, updated, has_changed=has_changed)
    is_stale = group.assignment_epoch < epoch
    if not is_stale:
        assignment = group.target_of(updated.member_id, updated.instance_id)
        target = Target(group.assignment_epoch, assignment)
        updated = change.reconcile(updated, target, has_changed=has_changed)
    staying = [
        other for other in group.members.values() if other.instance_id != updated.instance_id
    ]
    downgraded = conversion.convert(
        groups,
        group,
        [*staying, updated],
        replacement=conversion.Replacement(replaced, updated),
        must_rebalance=is_stale,
    )

    def on_append(error: KafkaError | None) -> None:
        if downgraded.on_append is not None:
            downgraded.on_append(error)
        if error is None:
            call.answer.complete(_response(updated))

    written = [*change.records, *downgraded.records]
    return Result(None, written, on_append, on_commit=downgraded.on_commit)


def _response(member: ConsumerMember) -> JoinGroupResponse:
    assert member.classic is not None
    return JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.member_epoch,
        protocol_type="consumer",
        protocol_name=member.classic.protocol_name,
        leader="",
        members=[],
    )


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
    assignment = conversion.write_assignment(consumer.topics, owned, classic.protocols[0][1])

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
