"""Move the log start offset forward, -1 for up to the high watermark (KIP-107).

Kafka: DeleteRecordsRequest, DeleteRecordsResponse (key 21).

v2 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32, int64


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible="2+", listeners=("broker",)):
    topics: list[DeleteRecordsTopic]
    timeout_ms: int32

    class DeleteRecordsTopic(Struct):
        name: str
        partitions: list[DeleteRecordsPartition]

        class DeleteRecordsPartition(Struct):
            partition_index: int32
            offset: int64  # -1: high watermark


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    topics: list[DeleteRecordsTopicResult]

    class DeleteRecordsTopicResult(Struct):
        name: str
        partitions: list[DeleteRecordsPartitionResult]

        class DeleteRecordsPartitionResult(Struct):
            partition_index: int32
            low_watermark: int64
            error_code: int16 = 0
