"""A new raft leader notifies the voters (KIP-595).

Kafka: BeginQuorumEpochRequest, BeginQuorumEpochResponse (key 53).

v1 flexible, voter directory ids and the endpoints of the leader (KIP-853).
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int16, int32, uint16
from ottla.types import ZERO_UUID, Uuid


class BeginQuorumEpochRequest(
    Request, key=53, versions="0-1", flexible="1+", listeners=("controller",)
):
    cluster_id: str | None = None
    voter_id: int32 = field("1+", default=-1, ignorable=True)
    topics: list[TopicData]
    leader_endpoints: list[LeaderEndpoint] = field("1+", default=EMPTY, ignorable=True)

    class TopicData(Struct):
        topic_name: str
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition_index: int32
            voter_directory_id: Uuid = field("1+", default=ZERO_UUID, ignorable=True)
            leader_id: int32
            leader_epoch: int32

    class LeaderEndpoint(Struct):
        name: str
        host: str
        port: uint16


class BeginQuorumEpochResponse(Response, key=53, versions="0-1", flexible="1+"):
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
