"""ConsumerGroupHeartbeat: validation; join, stay, change the subscription; the assignment.

Kafka: GroupMetadataManager.{consumerGroupHeartbeat,
getOrMaybeSubscribeDynamicConsumerGroupMember, getOrMaybeSubscribeStaticConsumerGroupMember,
consumerGroupLeave, consumerGroupStaticMemberGroupLeave};
GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid,
GroupMetadataManager.{throwIfConsumerGroupMemberEpochIsInvalid, throwIfInstanceIdIsUnreleased,
throwIfInstanceIdIsFenced, throwIfStaticMemberIsUnknown, throwIfConsumerGroupIsFull}.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.consumer import patterns
from ottla.coordinator.group.consumer.group import ConsumerMember, without_epochs
from ottla.coordinator.group.consumer.reconcile import GroupChange
from ottla.coordinator.group.member_group import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from ottla.coordinator.group.responses import check_epoch, full_group, require, require_filled
from ottla.coordinator.runtime import Result
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.group import TopicPartitions as TopicPartitionsById
    from ottla.coordinator.group.consumer.kind import ConsumerGroups
    from ottla.coordinator.group.context import ConsumerGroupConfig, RequestContext


_CLIENT_MEMBER_ID_VERSION: Final = 1
"""The first version in which clients make their member ids (KIP-1082)."""


def check_request(
    request: ConsumerGroupHeartbeatRequest,
    api_version: int,
    settings: Callable[[str], ConsumerGroupConfig],
) -> None:
    """Raise INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if api_version >= _CLIENT_MEMBER_ID_VERSION or epoch > 0 or epoch == LEAVE_EPOCH:
        require_filled(request.member_id, "MemberId")
    require_filled(request.group_id, "GroupId")
    require_filled(request.instance_id, "InstanceId")
    require_filled(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        require(
            request.rebalance_timeout_ms != -1,
            "RebalanceTimeoutMs must be provided in first request.",
        )
        require(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
        require(
            request.subscribed_topic_names is not None
            or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining.",
        )
    elif epoch == LEAVE_STATIC_EPOCH:
        require(request.instance_id is not None, "InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is None:
        return
    assignors = settings(request.group_id).assignors
    if assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def check_size_of_names(request: ConsumerGroupHeartbeatRequest, limit_bytes: int) -> None:
    """Raise MESSAGE_TOO_LARGE where the subscription cannot be written, before it is applied."""
    if sum(map(len, request.subscribed_topic_names or ())) > limit_bytes:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)


def _is_within(owned: TopicPartitionsById | None, member: ConsumerMember) -> bool:
    if owned is None:
        return False
    return all(
        index in member.assigned.get(topic_id, {})
        for topic_id, indexes in owned.items()
        for index in indexes
    )


def static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """Return the member of an instance id: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID for others."""
    member = group.static_member(instance_id)
    if member is None:
        text = f"Instance id {instance_id} is unknown."
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def _check_released(existing: ConsumerMember, member_id: str) -> None:
    """Raise UNRELEASED_INSTANCE_ID while another member uses the instance id."""
    if existing.member_epoch != LEAVE_STATIC_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {existing.instance_id} cannot join the "
            f"group because the instance id is owned by {existing.member_id} member.",
        )


def check_size(group: ConsumerGroup, member_id: str, limit: int) -> None:
    """Raise GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    if len(group.members) >= limit and (not member_id or member_id not in group.members):
        raise full_group("consumer", limit)


def heartbeat(
    groups: ConsumerGroups,
    group: ConsumerGroup | None,
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
) -> Result[ConsumerGroupHeartbeatResponse]:
    """Apply a heartbeat whose request is valid; group is the one that it names, if it exists."""
    if request.member_epoch < JOIN_EPOCH:
        return _leave(groups, request)
    if group is None:
        is_joining = request.member_epoch == JOIN_EPOCH
        group = groups.new(request.group_id) if is_joining else groups.get(request.group_id)
    settings = groups.settings(request.group_id)
    check_size(group, request.member_id, settings.max_size)
    change = GroupChange(groups, group, _owned(request))
    member = _find_member(change, request, request.member_id or groups.new_member_id())
    updated = _with_request(member, request, context)
    if updated is member and _is_settled(group, member):
        session_ms = settings.session_timeout_ms
        groups.start_session(group.group_id, member.member_id, session_ms)
        return Result(_response(settings, request, member, member))
    has_changed = change.write_subscription(member, updated)
    has_new_pattern, is_resolved = patterns.update(
        groups, group, member, updated, change.records, may_describe=context.may_describe_topic
    )
    has_raised = has_changed or is_resolved
    epoch = change.group_epoch(member, updated, has_changed=has_raised)
    has_changed |= has_new_pattern
    target = groups.update_target(group, epoch, updated, change.records)
    reconciled = change.reconcile(updated, target, has_changed=has_changed)
    has_moved = reconciled is not updated and reconciled != updated
    if member.classic is not None:  # in Kafka its deadline to rejoin or sync still removes it
        groups.cancel_timers(group.group_id, member.member_id)
    groups.follow(group.group_id, reconciled, has_moved=has_moved)
    response = _response(settings, request, member, reconciled)
    return Result(response, change.records)


def _is_settled(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a heartbeat without news changes nothing: by far the most frequent case."""
    return (
        group.is_fresh
        and group.epoch <= group.assignment_epoch
        and member.is_reconciled_to(group.assignment_epoch)
        and not group.regex_counts
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> TopicPartitionsById | None:
    if request.topic_partitions is None:
        return None
    return {topic.topic_id: tuple(topic.partitions) for topic in request.topic_partitions}


def _find_member(
    change: GroupChange, request: ConsumerGroupHeartbeatRequest, member_id: str
) -> ConsumerMember:
    group, epoch = change.group, request.member_epoch
    instance_id = request.instance_id
    if instance_id is None:
        if epoch == JOIN_EPOCH and member_id not in group.members:
            return ConsumerMember(member_id)
        member = group.member(member_id)
        check_epoch("consumer", member, epoch, change.owned, _is_within)
        return member
    if epoch != JOIN_EPOCH:
        member = static_member(group, member_id, instance_id)
        check_epoch("consumer", member, epoch, change.owned, _is_within)
        return member
    existing = group.static_member(instance_id)
    if existing is None:
        known: ConsumerMember | None = group.members.get(member_id)
        return known or ConsumerMember(member_id)
    if existing.classic is None:
        _check_released(existing, member_id)
    return change.replace_static(existing, member_id)


def _with_request(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerMember:
    timeout_ms = request.rebalance_timeout_ms
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    is_idle = names is None and pattern is None and timeout_ms == -1
    has_no_news = is_idle and request.server_assignor is None and request.rack_id is None
    is_same_client = (
        member.client_id == context.client_id
        and member.client_host == context.client_host
        and member.classic is None
        and request.instance_id in (None, member.instance_id)
    )
    if has_no_news and is_same_client:
        return member
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        subscribed_topics=(
            member.subscribed_topics if names is None else tuple(sorted(dict.fromkeys(names)))
        ),
        subscribed_regex=member.subscribed_regex if pattern is None else pattern,
        client_id=context.client_id,
        client_host=context.client_host,
        classic=None,
    )


def _response(
    settings: ConsumerGroupConfig,
    request: ConsumerGroupHeartbeatRequest,
    member: ConsumerMember,
    reconciled: ConsumerMember,
) -> ConsumerGroupHeartbeatResponse:
    """Return the response; the assignment is in it where the client cannot know it."""
    response = ConsumerGroupHeartbeatResponse(
        member_id=reconciled.member_id,
        member_epoch=reconciled.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
    )
    is_full_request = (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )
    is_joining = request.member_epoch == JOIN_EPOCH
    if is_full_request or is_joining or reconciled.assigned != member.assigned:
        response.assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in without_epochs(reconciled.assigned).items()
            ]
        )
    return response


def _leave(
    groups: ConsumerGroups, request: ConsumerGroupHeartbeatRequest
) -> Result[ConsumerGroupHeartbeatResponse]:
    """Remove a member; one that leaves for a time keeps its partitions for its session."""
    group = groups.to_leave(request.group_id)
    response = ConsumerGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=0,
    )
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = static_member(group, request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            away = replace(
                member,
                member_epoch=LEAVE_STATIC_EPOCH,
                assigned={
                    topic_id: dict.fromkeys(epochs, 0)
                    for topic_id, epochs in member.assigned.items()
                },
                pending_revocation={},
            )
            return Result(response, [groups.current_assignment(group.group_id, away)])
    return groups.fence(group, [member], response)
