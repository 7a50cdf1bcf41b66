"""Join, stay in and leave a share group (KIP-932).

Kafka: ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse (key 76).

v1 is the first stable version.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32
from ottla.types import Uuid


class ShareGroupHeartbeatRequest(
    Request, key=76, versions="1", flexible="0+", listeners=("broker",)
):
    group_id: str
    member_id: str
    member_epoch: int32
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


class ShareGroupHeartbeatResponse(Response, key=76, versions="1", flexible="0+"):
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
