"""Join, stay in and leave a streams group: topology, tasks, endpoints (KIP-1071).

Kafka: StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse (key 88).

As in ConsumerGroupHeartbeat, null fields are unchanged; member epochs 0 and below join or leave.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int8, int16, int32, int64, uint16


class StreamsGroupHeartbeatRequest(
    Request, key=88, versions="0", flexible="0+", listeners=("broker",)
):
    group_id: str
    member_id: str
    member_epoch: int32
    endpoint_information_epoch: int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False

    class Topology(Struct):
        epoch: int32
        subtopologies: list[Subtopology]

        class Subtopology(Struct):
            subtopology_id: str
            source_topics: list[str]
            source_topic_regex: list[str]
            state_changelog_topics: list[TopicInfo]
            repartition_sink_topics: list[str]
            repartition_source_topics: list[TopicInfo]
            copartition_groups: list[CopartitionGroup]

            class CopartitionGroup(Struct):
                source_topics: list[int16]
                source_topic_regex: list[int16]
                repartition_source_topics: list[int16]


class StreamsGroupHeartbeatResponse(Response, key=88, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str
    member_epoch: int32
    heartbeat_interval_ms: int32
    acceptable_recovery_lag: int32
    task_offset_interval_ms: int32
    status: list[Status] | None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    endpoint_information_epoch: int32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None

    class EndpointToPartitions(Struct):
        user_endpoint: Endpoint
        active_partitions: list[TopicPartition]
        standby_partitions: list[TopicPartition]


class KeyValue(Struct):
    key: str
    value: str


class TopicInfo(Struct):
    name: str
    partitions: int32
    replication_factor: int16
    topic_configs: list[KeyValue]


class Endpoint(Struct):
    host: str
    port: uint16


class TaskOffset(Struct):
    subtopology_id: str
    partition: int32
    offset: int64


class TaskIds(Struct):
    subtopology_id: str
    partitions: list[int32]


class Status(Struct):
    status_code: int8
    status_detail: str


class TopicPartition(Struct):
    topic: str
    partitions: list[int32]
