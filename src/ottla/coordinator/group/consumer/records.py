"""The records of consumer groups.

Kafka: GroupCoordinatorRecordHelpers.newConsumerGroup*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.group import tombstones
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.protocol.records import consumer_group as schemas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.coordinator.group.consumer.group import ConsumerGroup, ResolvedRegex
    from ottla.coordinator.group.consumer.member import (
        ConsumerMember,
        EpochsByPartition,
        TopicPartitions,
    )

_MEMBER_KEYS: Final = (
    schemas.ConsumerGroupCurrentMemberAssignmentKey,
    schemas.ConsumerGroupTargetAssignmentMemberKey,
    schemas.ConsumerGroupMemberMetadataKey,
)


def group_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return the records of a whole group with its members, in Kafka's order."""
    group_id, members = group.group_id, tuple(group.members.values())
    return [
        *(member_subscription(group_id, one) for one in members),
        group_epoch(group_id, group.epoch, group.metadata_hash),
        *(
            target_member(group_id, one.member_id, group.target.get(one.member_id, {}))
            for one in members
        ),
        target_epoch(group_id, group.assignment_epoch, group.assignment_timestamp_ms),
        *(current_assignment(group_id, one) for one in members),
    ]


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the record of a group epoch."""
    return CoordinatorRecord(
        schemas.ConsumerGroupMetadataKey(group_id=group_id),
        schemas.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_subscription(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a member's subscription."""
    return CoordinatorRecord(
        schemas.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        schemas.ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.subscribed_topics),
            subscribed_topic_regex=member.subscribed_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=_classic(member),
        ),
    )


def _classic(
    member: ConsumerMember,
) -> schemas.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None:
    if member.classic is None:
        return None
    value = schemas.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
    return value(
        session_timeout_ms=member.classic.session_timeout_ms,
        supported_protocols=[
            value.ClassicProtocol(name=name, metadata=metadata)
            for name, metadata in member.classic.protocols
        ],
    )


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """Return the record of the epoch of a target assignment."""
    return CoordinatorRecord(
        schemas.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        schemas.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def target_member(group_id: str, member_id: str, partitions: TopicPartitions) -> CoordinatorRecord:
    """Return the record of a member's target assignment."""
    value = schemas.ConsumerGroupTargetAssignmentMemberValue
    return CoordinatorRecord(
        schemas.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        value(
            topic_partitions=[
                value.TopicPartition(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in partitions.items()
            ]
        ),
    )


def current_assignment(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a member's state, epochs and partitions."""
    return CoordinatorRecord(
        schemas.ConsumerGroupCurrentMemberAssignmentKey(
            group_id=group_id, member_id=member.member_id
        ),
        schemas.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=int(member.state),
            assigned_partitions=_partitions(member.assigned),
            partitions_pending_revocation=_partitions(member.pending_revocation),
        ),
    )


def _partitions(assignment: EpochsByPartition) -> list[schemas.TopicPartitions]:
    return [
        schemas.TopicPartitions(
            topic_id=topic_id,
            partitions=list(epochs),
            assignment_epochs=list(epochs.values()),
        )
        for topic_id, epochs in assignment.items()
    ]


def regex(group_id: str, pattern: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """Return the record of a resolved regular expression."""
    return CoordinatorRecord(
        schemas.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern),
        schemas.ConsumerGroupRegularExpressionValue(
            topics=list(resolved.topics),
            version=resolved.version,
            timestamp=resolved.timestamp_ms,
        ),
    )


def regex_tombstone(group_id: str, pattern: str) -> CoordinatorRecord:
    """Return the record that removes a resolved regular expression."""
    key = schemas.ConsumerGroupRegularExpressionKey
    return CoordinatorRecord(key(group_id=group_id, regular_expression=pattern))


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the record that removes partition counts, which earlier releases wrote."""
    return CoordinatorRecord(schemas.ConsumerGroupPartitionMetadataKey(group_id=group_id))


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the records that remove a member: current assignment, target and subscription."""
    return tombstones.of_member(_MEMBER_KEYS, group_id, member_id)


def group_tombstones(
    group: ConsumerGroup, renamed: Mapping[str, str] | None = None
) -> list[CoordinatorRecord]:
    """Return the records that remove a group with its members, in Kafka's order.

    renamed holds the new ids of members that were replaced in the same batch.
    """
    group_id = group.group_id
    names = [(renamed or {}).get(name, name) for name in group.members]
    current, target, subscriptions = tombstones.of_members(_MEMBER_KEYS, group_id, names)
    return [
        *current,
        *target,
        CoordinatorRecord(schemas.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)),
        *subscriptions,
        *(regex_tombstone(group_id, pattern) for pattern in group.resolved),
        partition_metadata_tombstone(group_id),
        CoordinatorRecord(schemas.ConsumerGroupMetadataKey(group_id=group_id)),
    ]
