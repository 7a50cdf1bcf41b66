"""State and members of share groups (KIP-932).

Kafka: ShareGroupDescribeRequest, ShareGroupDescribeResponse (key 77).

v1 is the first stable version.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32
from ottla.types import Uuid


class ShareGroupDescribeRequest(
    Request, key=77, versions="1", flexible="0+", listeners=("broker",)
):
    group_ids: list[str]
    include_authorized_operations: bool


class ShareGroupDescribeResponse(Response, key=77, versions="1", flexible="0+"):
    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup]

    class DescribedGroup(Struct):
        error_code: int16 = 0
        error_message: str | None = None
        group_id: str
        group_state: str
        group_epoch: int32
        assignment_epoch: int32
        assignor_name: str
        members: list[Member]
        authorized_operations: int32 = -2_147_483_648

        class Member(Struct):
            member_id: str
            rack_id: str | None = None
            member_epoch: int32
            client_id: str
            client_host: str
            subscribed_topic_names: list[str]
            assignment: Assignment


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: str
    partitions: list[int32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]
