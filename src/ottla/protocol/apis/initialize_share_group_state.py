"""The group coordinator creates the state of share partitions (KIP-932).

Kafka: InitializeShareGroupStateRequest, InitializeShareGroupStateResponse (key 83).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32, int64
from ottla.types import Uuid


class InitializeShareGroupStateRequest(
    Request, key=83, versions="0", flexible="0+", listeners=("broker",)
):
    group_id: str
    topics: list[InitializeStateData]

    class InitializeStateData(Struct):
        topic_id: Uuid
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition: int32
            state_epoch: int32
            start_offset: int64


class InitializeShareGroupStateResponse(Response, key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult]

    class InitializeStateResult(Struct):
        topic_id: Uuid
        partitions: list[PartitionResult]

        class PartitionResult(Struct):
            partition: int32
            error_code: int16 = 0
            error_message: str | None = None
