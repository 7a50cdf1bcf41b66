"""State, members, topology and tasks of streams groups (KIP-1071).

Kafka: StreamsGroupDescribeRequest, StreamsGroupDescribeResponse (key 89).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32, int64, uint16


class StreamsGroupDescribeRequest(
    Request, key=89, versions="0", flexible="0+", listeners=("broker",)
):
    group_ids: list[str]
    include_authorized_operations: bool


class StreamsGroupDescribeResponse(Response, key=89, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup]

    class DescribedGroup(Struct):
        error_code: int16 = 0
        error_message: str | None = None
        group_id: str
        group_state: str
        group_epoch: int32
        assignment_epoch: int32
        topology: Topology | None = None
        members: list[Member]
        authorized_operations: int32 = -2_147_483_648

        class Topology(Struct):
            epoch: int32
            subtopologies: list[Subtopology] | None = None

            class Subtopology(Struct):
                subtopology_id: str
                source_topics: list[str]
                repartition_sink_topics: list[str]
                state_changelog_topics: list[TopicInfo]
                repartition_source_topics: list[TopicInfo]

        class Member(Struct):
            member_id: str
            member_epoch: int32
            instance_id: str | None = None
            rack_id: str | None = None
            client_id: str
            client_host: str
            topology_epoch: int32
            process_id: str
            user_endpoint: Endpoint | None = None
            client_tags: list[KeyValue]
            task_offsets: list[TaskOffset]
            task_end_offsets: list[TaskOffset]
            assignment: Assignment
            target_assignment: Assignment
            is_classic: bool


class Endpoint(Struct):
    host: str
    port: uint16


class TaskOffset(Struct):
    subtopology_id: str
    partition: int32
    offset: int64


class Assignment(Struct):
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class TaskIds(Struct):
    subtopology_id: str
    partitions: list[int32]


class KeyValue(Struct):
    key: str
    value: str


class TopicInfo(Struct):
    name: str
    partitions: int32
    replication_factor: int16
    topic_configs: list[KeyValue]
