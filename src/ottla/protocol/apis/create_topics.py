"""Create topics, with replica assignments by the controller or by the client.

Kafka: CreateTopicsRequest, CreateTopicsResponse (key 19).

v4 default partition count and replication factor (KIP-464); v5 flexible, returns the created
topic's settings (KIP-525); v6 may be throttled (KIP-599); v7 returns the topic id (KIP-516).
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int8, int16, int32
from ottla.types import ZERO_UUID, Uuid


class CreateTopicsRequest(
    Request, key=19, versions="2-7", flexible="5+", listeners=("broker", "controller")
):
    topics: list[CreatableTopic]
    timeout_ms: int32 = 60_000
    validate_only: bool = False

    class CreatableTopic(Struct):
        name: str
        num_partitions: int32  # -1: default
        replication_factor: int16  # -1: default
        assignments: list[CreatableReplicaAssignment]
        configs: list[CreatableTopicConfig]

        class CreatableReplicaAssignment(Struct):
            partition_index: int32
            broker_ids: list[int32]

        class CreatableTopicConfig(Struct):
            name: str
            value: str | None = field(sensitive=True)


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int32 = field(default=0, ignorable=True)
    topics: list[CreatableTopicResult]

    class CreatableTopicResult(Struct):
        name: str
        topic_id: Uuid = field("7+", default=ZERO_UUID, ignorable=True)
        error_code: int16 = 0
        error_message: str | None = field(ignorable=True)
        topic_config_error_code: int16 = field("5+", default=0, tag=0, ignorable=True)
        num_partitions: int32 = field("5+", default=-1, ignorable=True)
        replication_factor: int16 = field("5+", default=-1, ignorable=True)
        configs: list[CreatableTopicConfigs] | None = field("5+", default=EMPTY, ignorable=True)

        class CreatableTopicConfigs(Struct):
            name: str
            value: str | None
            read_only: bool
            config_source: int8 = field(default=-1, ignorable=True)
            is_sensitive: bool
