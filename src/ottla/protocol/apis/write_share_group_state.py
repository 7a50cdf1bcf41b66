"""A share partition leader persists its state (KIP-932).

Kafka: WriteShareGroupStateRequest, WriteShareGroupStateResponse (key 85).

v1 number of completed deliveries, for the lag (KIP-1226).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int8, int16, int32, int64
from ottla.types import Uuid


class WriteShareGroupStateRequest(
    Request, key=85, versions="0-1", flexible="0+", listeners=("broker",)
):
    group_id: str
    topics: list[WriteStateData]

    class WriteStateData(Struct):
        topic_id: Uuid
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition: int32
            state_epoch: int32
            leader_epoch: int32
            start_offset: int64
            delivery_complete_count: int32 = field("1+", default=-1, ignorable=True)
            state_batches: list[StateBatch]

            class StateBatch(Struct):
                first_offset: int64
                last_offset: int64
                delivery_state: int8
                delivery_count: int16


class WriteShareGroupStateResponse(Response, key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult]

    class WriteStateResult(Struct):
        topic_id: Uuid
        partitions: list[PartitionResult]

        class PartitionResult(Struct):
            partition: int32
            error_code: int16 = 0
            error_message: str | None = None
