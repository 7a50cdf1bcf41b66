"""Begin, change or cancel (null replicas) reassignments (KIP-455).

Kafka: AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse (key 45).

v1 can forbid a change of the replication factor (KIP-860).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32


class AlterPartitionReassignmentsRequest(
    Request, key=45, versions="0-1", flexible="0+", listeners=("broker", "controller")
):
    timeout_ms: int32 = 60_000
    allow_replication_factor_change: bool = field("1+", default=True)  # KIP-860
    topics: list[ReassignableTopic]

    class ReassignableTopic(Struct):
        name: str
        partitions: list[ReassignablePartition]

        class ReassignablePartition(Struct):
            partition_index: int32
            replicas: list[int32] | None = None  # null: cancel


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    allow_replication_factor_change: bool = field("1+", default=True, ignorable=True)
    error_code: int16 = 0
    error_message: str | None
    responses: list[ReassignableTopicResponse]

    class ReassignableTopicResponse(Struct):
        name: str
        partitions: list[ReassignablePartitionResponse]

        class ReassignablePartitionResponse(Struct):
            partition_index: int32
            error_code: int16 = 0
            error_message: str | None
