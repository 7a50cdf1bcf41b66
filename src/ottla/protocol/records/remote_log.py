"""Records of __remote_log_metadata (KIP-405).

Kafka: RemoteLogSegmentMetadataRecord, RemotePartitionDeleteMetadataRecord and others.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct, field, int8, int32, int64
from ottla.types import Uuid


class RemoteLogSegmentMetadataRecord(Struct, key=0, versions="0", flexible="0+"):
    """A segment whose copy to remote storage has started."""

    remote_log_segment_id: RemoteLogSegmentIdEntry
    start_offset: int64
    end_offset: int64
    broker_id: int32
    max_timestamp_ms: int64
    event_timestamp_ms: int64
    segment_leader_epochs: list[SegmentLeaderEpochEntry]
    segment_size_in_bytes: int32
    custom_metadata: bytes | None = None
    remote_log_segment_state: int8
    txn_index_empty: bool = field(default=False, tag=0)

    class RemoteLogSegmentIdEntry(Struct):
        topic_id_partition: TopicIdPartitionEntry
        id: Uuid

        class TopicIdPartitionEntry(Struct):
            name: str
            id: Uuid
            partition: int32

    class SegmentLeaderEpochEntry(Struct):
        leader_epoch: int32
        offset: int64


class RemoteLogSegmentMetadataUpdateRecord(Struct, key=1, versions="0", flexible="0+"):
    """A state change of a segment in remote storage."""

    remote_log_segment_id: RemoteLogSegmentIdEntry
    broker_id: int32
    event_timestamp_ms: int64
    custom_metadata: bytes | None = None
    remote_log_segment_state: int8

    class RemoteLogSegmentIdEntry(Struct):
        topic_id_partition: TopicIdPartitionEntry
        id: Uuid

        class TopicIdPartitionEntry(Struct):
            name: str
            id: Uuid
            partition: int32


class RemotePartitionDeleteMetadataRecord(Struct, key=2, versions="0", flexible="0+"):
    """Progress of a partition's deletion from remote storage."""

    topic_id_partition: TopicIdPartitionEntry
    broker_id: int32
    event_timestamp_ms: int64
    remote_partition_delete_state: int8

    class TopicIdPartitionEntry(Struct):
        name: str
        id: Uuid
        partition: int32


class RemoteLogSegmentMetadataSnapshotRecord(Struct, key=3, versions="0", flexible="0+"):
    """A segment in a local snapshot, without the partition."""

    segment_id: Uuid
    start_offset: int64
    end_offset: int64
    broker_id: int32
    max_timestamp_ms: int64
    event_timestamp_ms: int64
    segment_leader_epochs: list[SegmentLeaderEpochEntry]
    segment_size_in_bytes: int32
    custom_metadata: bytes | None = None
    remote_log_segment_state: int8
    txn_index_empty: bool = field(default=False, tag=0)

    class SegmentLeaderEpochEntry(Struct):
        leader_epoch: int32
        offset: int64
