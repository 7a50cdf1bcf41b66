"""What a heartbeat must look like, and which member may send it.

Kafka: GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid,
GroupMetadataManager.{throwIfConsumerGroupMemberEpochIsInvalid, throwIfInstanceIdIsUnreleased,
throwIfInstanceIdIsFenced, throwIfStaticMemberIsUnknown, throwIfConsumerGroupIsFull}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.checks import fenced_epoch, full_group, require, require_filled
from ottla.coordinator.group.consumer.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
)
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinator.group.consumer.group import ConsumerGroup, TopicPartitions
    from ottla.coordinator.group.context import ConsumerGroupConfig
    from ottla.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

CLIENT_MEMBER_ID_VERSION: Final = 1
"""The first version in which clients make their member ids (KIP-1082)."""


def check_request(
    request: ConsumerGroupHeartbeatRequest,
    api_version: int,
    settings: Callable[[str], ConsumerGroupConfig],
) -> None:
    """Raise INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if api_version >= CLIENT_MEMBER_ID_VERSION or epoch > 0 or epoch == LEAVE_EPOCH:
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


def check_epoch(member: ConsumerMember, epoch: int, owned: TopicPartitionsById | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the member is at this epoch.

    The previous epoch is accepted where the response with the new one may have been lost: if the
    member owns nothing but what it is assigned.
    """
    if epoch in (member.member_epoch, JOIN_EPOCH):
        return
    if epoch > member.member_epoch:
        relation = "greater"
    elif epoch == member.previous_member_epoch and _is_subset(owned, member):
        return
    else:
        relation = "smaller"
    raise fenced_epoch("consumer", relation, epoch, member.member_epoch)


def _is_subset(owned: TopicPartitionsById | None, member: ConsumerMember) -> bool:
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


def check_released(existing: ConsumerMember, member_id: str) -> None:
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
