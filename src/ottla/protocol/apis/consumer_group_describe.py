"""State and members of consumer groups (KIP-848).

Kafka: ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse (key 69).

v1 whether a member speaks the classic protocol (KIP-1099).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int8, int16, int32
from ottla.types import Uuid


class ConsumerGroupDescribeRequest(
    Request, key=69, versions="0-1", flexible="0+", listeners=("broker",)
):
    group_ids: list[str]
    include_authorized_operations: bool


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
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
            instance_id: str | None = None
            rack_id: str | None = None
            member_epoch: int32
            client_id: str
            client_host: str
            subscribed_topic_names: list[str]
            subscribed_topic_regex: str | None = None
            assignment: Assignment
            target_assignment: Assignment
            member_type: int8 = field("1+", default=-1, ignorable=True)


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: str
    partitions: list[int32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]
