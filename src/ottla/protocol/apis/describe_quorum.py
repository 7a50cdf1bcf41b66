"""Leader, voters and observers of a raft quorum and their log end offsets (KIP-595).

Kafka: DescribeQuorumRequest, DescribeQuorumResponse (key 55).

v1 times of last fetch and catch-up (KIP-836); v2 directory ids and endpoints (KIP-853).
"""

from __future__ import annotations

from ottla.protocol.schema import (
    EMPTY,
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


class DescribeQuorumRequest(
    Request, key=55, versions="0-2", flexible="0+", listeners=("broker", "controller")
):
    topics: list[TopicData]

    class TopicData(Struct):
        topic_name: str
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition_index: int32


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    error_code: int16 = 0
    error_message: str | None = field("2+", default="", ignorable=True)
    topics: list[TopicData]
    nodes: list[Node] = field("2+", default=EMPTY)

    class TopicData(Struct):
        topic_name: str
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition_index: int32
            error_code: int16 = 0
            error_message: str | None = field("2+", default="", ignorable=True)
            leader_id: int32
            leader_epoch: int32
            high_watermark: int64
            current_voters: list[ReplicaState]
            observers: list[ReplicaState]

    class Node(Struct):
        node_id: int32
        listeners: list[Listener]

        class Listener(Struct):
            name: str
            host: str
            port: uint16


class ReplicaState(Struct):
    replica_id: int32
    replica_directory_id: Uuid = field("2+", default=ZERO_UUID)
    log_end_offset: int64
    last_fetch_timestamp: int64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int64 = field("1+", default=-1, ignorable=True)
