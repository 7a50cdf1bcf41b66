"""Start offset of share partitions, without their batches (KIP-932).

Kafka: ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse (key 87).

v1 number of completed deliveries (KIP-1226).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32, int64
from ottla.types import Uuid


class ReadShareGroupStateSummaryRequest(
    Request, key=87, versions="0-1", flexible="0+", listeners=("broker",)
):
    group_id: str
    topics: list[ReadStateSummaryData]

    class ReadStateSummaryData(Struct):
        topic_id: Uuid
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition: int32
            leader_epoch: int32


class ReadShareGroupStateSummaryResponse(Response, key=87, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult]

    class ReadStateSummaryResult(Struct):
        topic_id: Uuid
        partitions: list[PartitionResult]

        class PartitionResult(Struct):
            partition: int32
            error_code: int16 = 0
            error_message: str | None = None
            state_epoch: int32
            leader_epoch: int32
            start_offset: int64
            delivery_complete_count: int32 = field("1+", default=-1, ignorable=True)
