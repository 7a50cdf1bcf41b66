"""Elect preferred (KIP-183) or unclean leaders.

Kafka: ElectLeadersRequest, ElectLeadersResponse (key 43).

v1 election type (KIP-460); v2 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class ElectLeadersRequest(
    Request, key=43, versions="0-2", flexible="2+", listeners=("broker", "controller")
):
    election_type: int8 = field("1+", default=0)  # 0 preferred, 1 unclean
    topic_partitions: list[TopicPartitions] | None  # null: all
    timeout_ms: int32 = 60_000

    class TopicPartitions(Struct):
        topic: str
        partitions: list[int32]


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field("1+", default=0)
    replica_election_results: list[ReplicaElectionResult]

    class ReplicaElectionResult(Struct):
        topic: str
        partition_result: list[PartitionResult]

        class PartitionResult(Struct):
            partition_id: int32
            error_code: int16 = 0
            error_message: str | None
