"""The group coordinator deletes the state of share partitions (KIP-932).

Kafka: DeleteShareGroupStateRequest, DeleteShareGroupStateResponse (key 86).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32
from ottla.types import Uuid


class DeleteShareGroupStateRequest(
    Request, key=86, versions="0", flexible="0+", listeners=("broker",)
):
    group_id: str
    topics: list[DeleteStateData]

    class DeleteStateData(Struct):
        topic_id: Uuid
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition: int32


class DeleteShareGroupStateResponse(Response, key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult]

    class DeleteStateResult(Struct):
        topic_id: Uuid
        partitions: list[PartitionResult]

        class PartitionResult(Struct):
            partition: int32
            error_code: int16 = 0
            error_message: str | None = None
