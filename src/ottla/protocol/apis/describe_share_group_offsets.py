"""Start offsets of the partitions of share groups (KIP-932).

Kafka: DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse (key 90).

v1 lag (KIP-1226).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32, int64
from ottla.types import Uuid


class DescribeShareGroupOffsetsRequest(
    Request, key=90, versions="0-1", flexible="0+", listeners=("broker",)
):
    groups: list[DescribeShareGroupOffsetsRequestGroup]

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        group_id: str
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None

        class DescribeShareGroupOffsetsRequestTopic(Struct):
            topic_name: str
            partitions: list[int32]


class DescribeShareGroupOffsetsResponse(Response, key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup]

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        group_id: str
        topics: list[DescribeShareGroupOffsetsResponseTopic]
        error_code: int16 = 0
        error_message: str | None = None

        class DescribeShareGroupOffsetsResponseTopic(Struct):
            topic_name: str
            topic_id: Uuid
            partitions: list[DescribeShareGroupOffsetsResponsePartition]

            class DescribeShareGroupOffsetsResponsePartition(Struct):
                partition_index: int32
                start_offset: int64
                leader_epoch: int32
                lag: int64 = field("1+", default=-1, ignorable=True)
                error_code: int16 = 0
                error_message: str | None = None
