"""Add partitions to topics (KIP-195).

Kafka: CreatePartitionsRequest, CreatePartitionsResponse (key 37).

v2 flexible; v3 may be throttled (KIP-599).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32


class CreatePartitionsRequest(
    Request, key=37, versions="0-3", flexible="2+", listeners=("broker", "controller")
):
    topics: list[CreatePartitionsTopic]
    timeout_ms: int32
    validate_only: bool

    class CreatePartitionsTopic(Struct):
        name: str
        count: int32
        assignments: list[CreatePartitionsAssignment] | None

        class CreatePartitionsAssignment(Struct):
            broker_ids: list[int32]


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult]

    class CreatePartitionsTopicResult(Struct):
        name: str
        error_code: int16 = 0
        error_message: str | None = None
