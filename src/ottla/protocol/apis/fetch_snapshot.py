"""Read a piece of a raft snapshot (KIP-630).

Kafka: FetchSnapshotRequest, FetchSnapshotResponse (key 59).

v1 directory of the replica and endpoints of the leader (KIP-853).
"""

from __future__ import annotations

from ottla.protocol.schema import (
    EMPTY,
    Records,
    Request,
    Response,
    Struct,
    field,
    int16,
    int32,
    int64,
    uint16,
)
from ottla.types import ZERO_UUID, Uuid


class FetchSnapshotRequest(
    Request, key=59, versions="0-1", flexible="0+", listeners=("controller",)
):
    cluster_id: str | None = field(default=None, tag=0)
    replica_id: int32 = -1
    max_bytes: int32 = 0x7FFF_FFFF
    topics: list[TopicSnapshot]

    class TopicSnapshot(Struct):
        name: str
        partitions: list[PartitionSnapshot]

        class PartitionSnapshot(Struct):
            partition: int32
            current_leader_epoch: int32
            snapshot_id: SnapshotId
            position: int64
            replica_directory_id: Uuid = field("1+", default=ZERO_UUID, tag=0, ignorable=True)

            class SnapshotId(Struct):
                end_offset: int64
                epoch: int32


class FetchSnapshotResponse(Response, key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = field(default=0, ignorable=True)
    error_code: int16 = 0
    topics: list[TopicSnapshot]
    node_endpoints: list[NodeEndpoint] = field("1+", default=EMPTY, tag=0)

    class TopicSnapshot(Struct):
        name: str
        partitions: list[PartitionSnapshot]

        class PartitionSnapshot(Struct):
            index: int32
            error_code: int16 = 0
            snapshot_id: SnapshotId
            current_leader: LeaderIdAndEpoch = field(default=EMPTY, tag=0)
            size: int64
            position: int64
            unaligned_records: Records | None = field(default=None, nullable="none")

            class SnapshotId(Struct):
                end_offset: int64
                epoch: int32

            class LeaderIdAndEpoch(Struct):
                leader_id: int32
                leader_epoch: int32

    class NodeEndpoint(Struct):
        node_id: int32
        host: str
        port: uint16
