"""Set start offsets of an empty share group (KIP-932).

Kafka: AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse (key 91).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32, int64
from ottla.types import Uuid


class AlterShareGroupOffsetsRequest(
    Request, key=91, versions="0", flexible="0+", listeners=("broker",)
):
    group_id: str
    topics: list[AlterShareGroupOffsetsRequestTopic]

    class AlterShareGroupOffsetsRequestTopic(Struct):
        topic_name: str
        partitions: list[AlterShareGroupOffsetsRequestPartition]

        class AlterShareGroupOffsetsRequestPartition(Struct):
            partition_index: int32
            start_offset: int64


class AlterShareGroupOffsetsResponse(Response, key=91, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic]

    class AlterShareGroupOffsetsResponseTopic(Struct):
        topic_name: str
        topic_id: Uuid
        partitions: list[AlterShareGroupOffsetsResponsePartition]

        class AlterShareGroupOffsetsResponsePartition(Struct):
            partition_index: int32
            error_code: int16 = 0
            error_message: str | None = None
