"""Delete the offsets of topics of an empty share group (KIP-932).

Kafka: DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse (key 92).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32
from ottla.types import Uuid


class DeleteShareGroupOffsetsRequest(
    Request, key=92, versions="0", flexible="0+", listeners=("broker",)
):
    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic]

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: str


class DeleteShareGroupOffsetsResponse(Response, key=92, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic]

    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: str
        topic_id: Uuid
        error_code: int16 = 0
        error_message: str | None = None
