"""Delete topics.

Kafka: DeleteTopicsRequest, DeleteTopicsResponse (key 20).

v4 flexible; v5 error messages, may be throttled (KIP-599); v6 by name or by id (KIP-516).
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int16, int32
from ottla.types import ZERO_UUID, Uuid


class DeleteTopicsRequest(
    Request, key=20, versions="1-6", flexible="4+", listeners=("broker", "controller")
):
    topics: list[DeleteTopicState] = field("6+", default=EMPTY)
    topic_names: list[str] = field("0-5", default=EMPTY, ignorable=True)
    timeout_ms: int32

    class DeleteTopicState(Struct):
        name: str | None = None
        topic_id: Uuid


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int32 = field(default=0, ignorable=True)
    responses: list[DeletableTopicResult]

    class DeletableTopicResult(Struct):
        name: str | None = field(nullable="6+")
        topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
        error_code: int16 = 0
        error_message: str | None = field("5+", default=None, ignorable=True)
