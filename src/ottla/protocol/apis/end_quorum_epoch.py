"""A raft leader resigns and names preferred successors (KIP-595).

Kafka: EndQuorumEpochRequest, EndQuorumEpochResponse (key 54).

v1 flexible, candidates by id and directory, endpoints of the leader (KIP-853).
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int16, int32, uint16
from ottla.types import Uuid


class EndQuorumEpochRequest(
    Request, key=54, versions="0-1", flexible="1+", listeners=("controller",)
):
    cluster_id: str | None = None
    topics: list[TopicData]
    leader_endpoints: list[LeaderEndpoint] = field("1+", default=EMPTY, ignorable=True)

    class TopicData(Struct):
        topic_name: str
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition_index: int32
            leader_id: int32
            leader_epoch: int32
            preferred_successors: list[int32] = field("0", default=EMPTY, ignorable=True)
            preferred_candidates: list[ReplicaInfo] = field("1+", default=EMPTY, ignorable=True)

            class ReplicaInfo(Struct):
                candidate_id: int32
                candidate_directory_id: Uuid

    class LeaderEndpoint(Struct):
        name: str
        host: str
        port: uint16


class EndQuorumEpochResponse(Response, key=54, versions="0-1", flexible="1+"):
    error_code: int16 = 0
    topics: list[TopicData]
    node_endpoints: list[NodeEndpoint] = field("1+", default=EMPTY, tag=0)

    class TopicData(Struct):
        topic_name: str
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition_index: int32
            error_code: int16 = 0
            leader_id: int32
            leader_epoch: int32

    class NodeEndpoint(Struct):
        node_id: int32
        host: str
        port: uint16
