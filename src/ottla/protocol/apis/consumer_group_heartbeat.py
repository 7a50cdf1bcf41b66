"""All there is of the consumer group protocol: join, stay, change, leave (KIP-848).

Kafka: ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse (key 68).

Null fields are unchanged since the last time. member_epoch 0 joins, -1 leaves, -2 leaves for a
while as a static member. v1 subscription by expression (KIP-848); the member makes its own id
(KIP-1082).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32
from ottla.types import Uuid


class ConsumerGroupHeartbeatRequest(
    Request, key=68, versions="0-1", flexible="0+", listeners=("broker",)
):
    group_id: str
    member_id: str
    member_epoch: int32  # 0 joins, -1 leaves, -2 comes back
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1  # -1: unchanged
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = field("1+", default=None)  # RE2
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: list[int32]


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32
    heartbeat_interval_ms: int32
    assignment: Assignment | None = None

    class Assignment(Struct):
        topic_partitions: list[TopicPartitions]


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[int32]
