"""Topics with their partition leaders and replicas, and the live brokers.

Kafka: MetadataRequest, MetadataResponse (key 3).

Null topics mean all topics. v5 offline replicas; v7 leader epochs (KIP-320); v8 authorised
operations (KIP-430); v9 flexible; v10 topic ids in the response (KIP-516); v11 drops the cluster's
authorised operations (KIP-700); v12 topic ids in the request; v13 top-level error code, which
makes clients bootstrap again (KIP-1102).
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int16, int32
from ottla.types import ZERO_UUID, Uuid


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+", listeners=("broker",)):
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")  # null: all
    allow_auto_topic_creation: bool = field("4+", default=True)
    include_cluster_authorized_operations: bool = field("8-10", default=False)
    include_topic_authorized_operations: bool = field("8+", default=False)  # KIP-430

    class MetadataRequestTopic(Struct):
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        name: str | None = field(nullable="10+")


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int32 = field("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None = field("2+", default=None, ignorable=True)
    controller_id: int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: int32 = field("8-10", default=-2_147_483_648)
    error_code: int16 = field("13+", default=0, ignorable=True)

    class MetadataResponseBroker(Struct):
        node_id: int32
        host: str
        port: int32
        rack: str | None = field("1+", default=None, ignorable=True)

    class MetadataResponseTopic(Struct):
        error_code: int16 = 0
        name: str | None = field(nullable="12+")
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        is_internal: bool = field("1+", default=False, ignorable=True)
        partitions: list[MetadataResponsePartition]
        # a set of bits, KIP-430
        topic_authorized_operations: int32 = field("8+", default=-2_147_483_648)

        class MetadataResponsePartition(Struct):
            error_code: int16 = 0
            partition_index: int32
            leader_id: int32  # -1: none
            leader_epoch: int32 = field("7+", default=-1, ignorable=True)
            replica_nodes: list[int32]
            isr_nodes: list[int32]
            offline_replicas: list[int32] = field("5+", default=EMPTY, ignorable=True)
