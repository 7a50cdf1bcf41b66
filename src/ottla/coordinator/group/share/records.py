"""The records of share groups.

Kafka: GroupCoordinatorRecordHelpers.newShareGroup*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.group import tombstones
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.protocol.records import share_group as schemas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.coordinator.group.share.group import ShareGroup, TopicParts
    from ottla.coordinator.group.share.member import ShareMember
    from ottla.types import Uuid

_MEMBER_KEYS: Final = (
    schemas.ShareGroupCurrentMemberAssignmentKey,
    schemas.ShareGroupTargetAssignmentMemberKey,
    schemas.ShareGroupMemberMetadataKey,
)


def member_subscription(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return the record of a member's subscription."""
    return CoordinatorRecord(
        schemas.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        schemas.ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.subscribed_topics),
        ),
    )


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the record of a group epoch."""
    return CoordinatorRecord(
        schemas.ShareGroupMetadataKey(group_id=group_id),
        schemas.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """Return the record of the epoch of a target assignment."""
    return CoordinatorRecord(
        schemas.ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        schemas.ShareGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def target_member(
    group_id: str, member_id: str, partitions: Mapping[Uuid, tuple[int, ...]]
) -> CoordinatorRecord:
    """Return the record of a member's target assignment."""
    value = schemas.ShareGroupTargetAssignmentMemberValue
    return CoordinatorRecord(
        schemas.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        value(
            topic_partitions=[
                value.TopicPartition(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in partitions.items()
            ]
        ),
    )


def current_assignment(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return the record of a member's epochs and partitions."""
    return CoordinatorRecord(
        schemas.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        schemas.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=0,  # the only one that share groups have: Stable
            assigned_partitions=[
                schemas.TopicPartitions(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in member.assigned.items()
            ],
        ),
    )


def state_partitions(
    group_id: str,
    initializing: Mapping[Uuid, TopicParts],
    initialized: Mapping[Uuid, TopicParts],
    deleting: Mapping[Uuid, str],
) -> CoordinatorRecord:
    """Return the record of the group's share partitions."""
    return CoordinatorRecord(
        schemas.ShareGroupStatePartitionMetadataKey(group_id=group_id),
        schemas.ShareGroupStatePartitionMetadataValue(
            initializing_topics=_topics(initializing),
            initialized_topics=_topics(initialized),
            deleting_topics=[
                schemas.TopicInfo(topic_id=topic_id, topic_name=name)
                for topic_id, name in deleting.items()
            ],
        ),
    )


def _topics(topics: Mapping[Uuid, TopicParts]) -> list[schemas.TopicPartitionsInfo]:
    return [
        schemas.TopicPartitionsInfo(
            topic_id=topic_id, topic_name=one.name, partitions=sorted(one.partitions)
        )
        for topic_id, one in topics.items()
    ]


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the records that remove a member: current assignment, target and subscription."""
    return tombstones.of_member(_MEMBER_KEYS, group_id, member_id)


def group_tombstones(group: ShareGroup) -> list[CoordinatorRecord]:
    """Return the records that remove a group without members."""
    group_id = group.group_id
    return [
        CoordinatorRecord(key(group_id=group_id))
        for key in (
            schemas.ShareGroupStatePartitionMetadataKey,
            schemas.ShareGroupTargetAssignmentMetadataKey,
            schemas.ShareGroupMetadataKey,
        )
    ]
