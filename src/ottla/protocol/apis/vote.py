"""A candidate for the leadership of a raft quorum requests a vote (KIP-595).

Kafka: VoteRequest, VoteResponse (key 52).

v1 directory ids of voters (KIP-853); v2 pre-vote (KIP-996).
"""

from __future__ import annotations

from ottla.protocol.schema import (
    EMPTY,
    Request,
    Response,
    Struct,
    field,
    int16,
    int32,
    int64,
    uint16,
)
from ottla.types import ZERO_UUID, Uuid


class VoteRequest(Request, key=52, versions="0-2", flexible="0+", listeners=("controller",)):
    cluster_id: str | None = None
    voter_id: int32 = field("1+", default=-1, ignorable=True)
    topics: list[TopicData]

    class TopicData(Struct):
        topic_name: str
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition_index: int32
            replica_epoch: int32
            replica_id: int32
            replica_directory_id: Uuid = field("1+", default=ZERO_UUID, ignorable=True)
            voter_directory_id: Uuid = field("1+", default=ZERO_UUID, ignorable=True)
            last_offset_epoch: int32
            last_offset: int64
            pre_vote: bool = field("2+", default=False)  # KIP-996


class VoteResponse(Response, key=52, versions="0-2", flexible="0+"):
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
            vote_granted: bool

    class NodeEndpoint(Struct):
        node_id: int32
        host: str
        port: uint16
