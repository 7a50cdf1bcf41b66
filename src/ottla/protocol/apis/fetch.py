"""Long-poll for records: consumers, followers and raft replicas alike.

Kafka: FetchRequest, FetchResponse (key 1).

Partitions are filled in request order; the first one with data may exceed the limits, so that a
large batch cannot stall a reader (KIP-74). v5 log start offset; v7 incremental sessions (KIP-227);
v9 leader epoch fencing (KIP-320); v10 zstd allowed (KIP-110); v11 rack of the reader (KIP-392);
v12 flexible, divergence detected by epoch (KIP-595); v13 topic ids (KIP-516); v14
OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405); v15 replica epoch (KIP-903); v16 leader hints
(KIP-951); v17 directory of a raft replica (KIP-853); v18 the replica's high watermark (KIP-1166).
"""

from __future__ import annotations

from ottla.protocol.schema import (
    EMPTY,
    Records,
    Request,
    Response,
    Struct,
    field,
    int8,
    int16,
    int32,
    int64,
)
from ottla.types import ZERO_UUID, Uuid


class FetchRequest(
    Request, key=1, versions="4-18", flexible="12+", listeners=("broker", "controller")
):
    cluster_id: str | None = field("12+", default=None, tag=0, ignorable=True)
    replica_id: int32 = field("0-14", default=-1)  # -1: a consumer
    replica_state: ReplicaState = field("15+", default=EMPTY, tag=1)  # KIP-903
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = field(default=0x7FFF_FFFF, ignorable=True)  # KIP-74
    isolation_level: int8 = field(default=0, ignorable=True)  # 1: committed transactions only
    session_id: int32 = field("7+", default=0, ignorable=True)  # KIP-227
    session_epoch: int32 = field("7+", default=-1, ignorable=True)  # -1: no session
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field("7+", default=EMPTY)
    rack_id: str = field("11+", default="", ignorable=True)  # KIP-392

    class ReplicaState(Struct):
        replica_id: int32 = -1  # -1: a consumer
        replica_epoch: int64 = -1

    class FetchTopic(Struct):
        topic: str = field("0-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[FetchPartition]

        class FetchPartition(Struct):
            partition: int32
            current_leader_epoch: int32 = field("9+", default=-1, ignorable=True)  # KIP-320
            fetch_offset: int64
            last_fetched_epoch: int32 = field("12+", default=-1)  # KIP-595
            log_start_offset: int64 = field("5+", default=-1, ignorable=True)
            partition_max_bytes: int32
            replica_directory_id: Uuid = field("17+", default=ZERO_UUID, tag=0, ignorable=True)
            high_watermark: int64 = field(
                "18+", default=0x7FFF_FFFF_FFFF_FFFF, tag=1, ignorable=True
            )

    class ForgottenTopic(Struct):
        topic: str = field("7-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[int32]


class FetchResponse(Response, key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int32 = field(default=0, ignorable=True)
    error_code: int16 = field("7+", default=0, ignorable=True)
    session_id: int32 = field("7+", default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field("16+", default=EMPTY, tag=0)  # KIP-951

    class FetchableTopicResponse(Struct):
        topic: str = field("0-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition_index: int32
            error_code: int16 = 0
            high_watermark: int64
            last_stable_offset: int64 = field(default=-1, ignorable=True)
            log_start_offset: int64 = field("5+", default=-1, ignorable=True)
            diverging_epoch: EpochEndOffset = field("12+", default=EMPTY, tag=0)  # KIP-595
            current_leader: LeaderIdAndEpoch = field("12+", default=EMPTY, tag=1)  # KIP-951
            snapshot_id: SnapshotId = field("12+", default=EMPTY, tag=2)  # KIP-630
            aborted_transactions: list[AbortedTransaction] | None = field(ignorable=True)
            preferred_read_replica: int32 = field("11+", default=-1)  # KIP-392
            records: Records | None = None

            class EpochEndOffset(Struct):
                epoch: int32 = -1
                end_offset: int64 = -1

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = -1
                leader_epoch: int32 = -1

            class SnapshotId(Struct):
                end_offset: int64 = -1
                epoch: int32 = -1

            class AbortedTransaction(Struct):
                producer_id: int64
                first_offset: int64

    class NodeEndpoint(Struct):
        node_id: int32
        host: str
        port: int32
        rack: str | None = None
