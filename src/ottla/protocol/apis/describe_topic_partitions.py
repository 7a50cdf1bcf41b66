"""Metadata of topics in pages, with eligible leader replicas (KIP-966).

Kafka: DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse (key 75).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32
from ottla.types import Uuid


class DescribeTopicPartitionsRequest(
    Request, key=75, versions="0", flexible="0+", listeners=("broker",)
):
    topics: list[TopicRequest]
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = None

    class TopicRequest(Struct):
        name: str

    class Cursor(Struct):
        topic_name: str
        partition_index: int32


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    throttle_time_ms: int32 = field(default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = None

    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: int16 = 0
        name: str | None
        topic_id: Uuid = field(ignorable=True)
        is_internal: bool = field(default=False, ignorable=True)
        partitions: list[DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: int32 = -2_147_483_648

        class DescribeTopicPartitionsResponsePartition(Struct):
            error_code: int16 = 0
            partition_index: int32
            leader_id: int32
            leader_epoch: int32 = field(default=-1, ignorable=True)
            replica_nodes: list[int32]
            isr_nodes: list[int32]
            eligible_leader_replicas: list[int32] | None = None
            last_known_elr: list[int32] | None = None
            offline_replicas: list[int32] = field(ignorable=True)

    class Cursor(Struct):
        topic_name: str
        partition_index: int32
