"""Records of __consumer_offsets for share groups (KIP-932).

Kafka: the ShareGroup* keys and values.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct, field, int8, int32, int64
from ottla.types import Uuid


class ShareGroupMemberMetadataKey(Struct, key=10, versions="0", flexible="none"):
    """Key of a member of a share group."""

    group_id: str
    member_id: str


class ShareGroupMemberMetadataValue(Struct, key=10, versions="0", flexible="0+"):
    """Metadata of a member of a share group."""

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]


class ShareGroupMetadataKey(Struct, key=11, versions="0", flexible="none"):
    """Key of a share group."""

    group_id: str


class ShareGroupMetadataValue(Struct, key=11, versions="0", flexible="0+"):
    """Epoch of a share group."""

    epoch: int32
    metadata_hash: int64


class ShareGroupTargetAssignmentMetadataKey(Struct, key=12, versions="0", flexible="none"):
    """Key of the epoch of the target assignment."""

    group_id: str


class ShareGroupTargetAssignmentMetadataValue(Struct, key=12, versions="0", flexible="0+"):
    """Epoch of the target assignment."""

    assignment_epoch: int32
    assignment_timestamp: int64 = field(default=0, tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Struct, key=13, versions="0", flexible="none"):
    """Key of the target assignment of a member."""

    group_id: str
    member_id: str


class ShareGroupTargetAssignmentMemberValue(Struct, key=13, versions="0", flexible="0+"):
    """Target assignment of a member."""

    topic_partitions: list[TopicPartition]

    class TopicPartition(Struct):
        topic_id: Uuid
        partitions: list[int32]


class ShareGroupCurrentMemberAssignmentKey(Struct, key=14, versions="0", flexible="none"):
    """Key of the current assignment of a member."""

    group_id: str
    member_id: str


class ShareGroupCurrentMemberAssignmentValue(Struct, key=14, versions="0", flexible="0+"):
    """Current assignment of a member."""

    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[TopicPartitions]


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[int32]


class ShareGroupStatePartitionMetadataKey(Struct, key=15, versions="0", flexible="none"):
    """Key of the share partitions of a group."""

    group_id: str


class ShareGroupStatePartitionMetadataValue(Struct, key=15, versions="0", flexible="0+"):
    """Share partitions being initialised, ready and being deleted."""

    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]


class TopicPartitionsInfo(Struct):
    topic_id: Uuid
    topic_name: str
    partitions: list[int32]


class TopicInfo(Struct):
    topic_id: Uuid
    topic_name: str
