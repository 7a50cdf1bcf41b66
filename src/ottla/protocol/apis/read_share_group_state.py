"""A share partition leader reads its persisted state (KIP-932).

Kafka: ReadShareGroupStateRequest, ReadShareGroupStateResponse (key 84).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int8, int16, int32, int64
from ottla.types import Uuid


class ReadShareGroupStateRequest(
    Request, key=84, versions="0", flexible="0+", listeners=("broker",)
):
    group_id: str
    topics: list[ReadStateData]

    class ReadStateData(Struct):
        topic_id: Uuid
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition: int32
            leader_epoch: int32


class ReadShareGroupStateResponse(Response, key=84, versions="0", flexible="0+"):
    results: list[ReadStateResult]

    class ReadStateResult(Struct):
        topic_id: Uuid
        partitions: list[PartitionResult]

        class PartitionResult(Struct):
            partition: int32
            error_code: int16 = 0
            error_message: str | None = None
            state_epoch: int32
            start_offset: int64
            state_batches: list[StateBatch]

            class StateBatch(Struct):
                first_offset: int64
                last_offset: int64
                delivery_state: int8
                delivery_count: int16
