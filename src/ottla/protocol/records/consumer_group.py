"""Records of __consumer_offsets for consumer groups (KIP-848).

Kafka: the ConsumerGroup* keys and values.
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Struct, field, int8, int32, int64
from ottla.types import Uuid


class ConsumerGroupMetadataKey(Struct, key=3, versions="0", flexible="none"):
    """Key of a consumer group."""

    group_id: str


class ConsumerGroupMetadataValue(Struct, key=3, versions="0", flexible="0+"):
    """Epoch of a consumer group."""

    epoch: int32
    metadata_hash: int64 = field(default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Struct, key=4, versions="0", flexible="none"):
    """Key of the partition counts of a consumer group's topics; no longer written."""

    group_id: str


class ConsumerGroupPartitionMetadataValue(Struct, key=4, versions="0", flexible="0+"):
    """Partition counts of a consumer group's topics; no longer written."""

    topics: list[TopicMetadata]

    class TopicMetadata(Struct):
        topic_id: Uuid
        topic_name: str
        num_partitions: int32
        partition_metadata: list[PartitionMetadata]

        class PartitionMetadata(Struct):
            partition: int32
            racks: list[str]


class ConsumerGroupMemberMetadataKey(Struct, key=5, versions="0", flexible="none"):
    """Key of a member of a consumer group."""

    group_id: str
    member_id: str


class ConsumerGroupMemberMetadataValue(Struct, key=5, versions="0", flexible="0+"):
    """Metadata of a member of a consumer group."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int32 = -1
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None = field(default=EMPTY, tag=0)

    class ClassicMemberMetadata(Struct):
        session_timeout_ms: int32
        supported_protocols: list[ClassicProtocol]

        class ClassicProtocol(Struct):
            name: str
            metadata: bytes


class ConsumerGroupTargetAssignmentMetadataKey(Struct, key=6, versions="0", flexible="none"):
    """Key of the epoch of the target assignment."""

    group_id: str


class ConsumerGroupTargetAssignmentMetadataValue(Struct, key=6, versions="0", flexible="0+"):
    """Epoch of the target assignment."""

    assignment_epoch: int32
    assignment_timestamp: int64 = field(default=0, tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Struct, key=7, versions="0", flexible="none"):
    """Key of the target assignment of a member."""

    group_id: str
    member_id: str


class ConsumerGroupTargetAssignmentMemberValue(Struct, key=7, versions="0", flexible="0+"):
    """Target assignment of a member."""

    topic_partitions: list[TopicPartition]

    class TopicPartition(Struct):
        topic_id: Uuid
        partitions: list[int32]


class ConsumerGroupCurrentMemberAssignmentKey(Struct, key=8, versions="0", flexible="none"):
    """Key of the current assignment of a member."""

    group_id: str
    member_id: str


class ConsumerGroupCurrentMemberAssignmentValue(Struct, key=8, versions="0", flexible="0+"):
    """Partitions that a member owns, and those pending revocation."""

    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[int32]
    assignment_epochs: list[int32] | None = field(default=EMPTY, tag=0)


class ConsumerGroupRegularExpressionKey(Struct, key=16, versions="0", flexible="none"):
    """Key of a resolved regular expression."""

    group_id: str
    regular_expression: str


class ConsumerGroupRegularExpressionValue(Struct, key=16, versions="0", flexible="0+"):
    """Topics that match a regular expression of the group."""

    topics: list[str]
    version: int64
    timestamp: int64
