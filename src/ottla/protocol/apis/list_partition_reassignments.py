"""List ongoing partition reassignments (KIP-455).

Kafka: ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse (key 46).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32


class ListPartitionReassignmentsRequest(
    Request, key=46, versions="0", flexible="0+", listeners=("broker", "controller")
):
    timeout_ms: int32 = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = None

    class ListPartitionReassignmentsTopics(Struct):
        name: str
        partition_indexes: list[int32]


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None
    topics: list[OngoingTopicReassignment]

    class OngoingTopicReassignment(Struct):
        name: str
        partitions: list[OngoingPartitionReassignment]

        class OngoingPartitionReassignment(Struct):
            partition_index: int32
            replicas: list[int32]
            adding_replicas: list[int32]
            removing_replicas: list[int32]
