"""Records of __consumer_offsets for streams groups (KIP-1071).

Kafka: the StreamsGroup* keys and values.
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Struct, field, int8, int16, int32, int64, uint16


class StreamsGroupMetadataKey(Struct, key=17, versions="0", flexible="none"):
    """Key of a streams group."""

    group_id: str


class StreamsGroupMetadataValue(Struct, key=17, versions="0", flexible="0+"):
    """Epoch of a streams group."""

    epoch: int32
    metadata_hash: int64
    validated_topology_epoch: int32 = field(default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(default=EMPTY, tag=1)


class LastAssignmentConfig(Struct):
    key: str
    value: str


class StreamsGroupMemberMetadataKey(Struct, key=19, versions="0", flexible="none"):
    """Key of a member of a streams group."""

    group_id: str
    member_id: str


class StreamsGroupMemberMetadataValue(Struct, key=19, versions="0", flexible="0+"):
    """Metadata of a member of a streams group."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int32 = -1
    topology_epoch: int32
    process_id: str
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue]


class Endpoint(Struct):
    host: str
    port: uint16


class KeyValue(Struct):
    key: str
    value: str


class StreamsGroupTargetAssignmentMetadataKey(Struct, key=20, versions="0", flexible="none"):
    """Key of the epoch of the target assignment."""

    group_id: str


class StreamsGroupTargetAssignmentMetadataValue(Struct, key=20, versions="0", flexible="0+"):
    """Epoch of the target assignment."""

    assignment_epoch: int32
    assignment_timestamp: int64 = field(default=0, tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Struct, key=21, versions="0", flexible="none"):
    """Key of the target assignment of a member."""

    group_id: str
    member_id: str


class StreamsGroupTargetAssignmentMemberValue(Struct, key=21, versions="0", flexible="0+"):
    """Target assignment of tasks to a member."""

    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class TaskIds(Struct):
    subtopology_id: str
    partitions: list[int32]


class StreamsGroupCurrentMemberAssignmentKey(Struct, key=22, versions="0", flexible="none"):
    """Key of the current assignment of a member."""

    group_id: str
    member_id: str


class StreamsGroupCurrentMemberAssignmentValue(Struct, key=22, versions="0", flexible="0+"):
    """Tasks that a member runs, and those pending revocation."""

    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    active_tasks: list[TaskIdsAndEpochs]
    standby_tasks: list[TaskIdsAndEpochs]
    warmup_tasks: list[TaskIdsAndEpochs]
    active_tasks_pending_revocation: list[TaskIdsAndEpochs]
    standby_tasks_pending_revocation: list[TaskIdsAndEpochs]
    warmup_tasks_pending_revocation: list[TaskIdsAndEpochs]


class TaskIdsAndEpochs(Struct):
    subtopology_id: str
    partitions: list[int32]
    assignment_epochs: list[int32] | None = field(default=EMPTY, tag=0)


class StreamsGroupTopologyKey(Struct, key=23, versions="0", flexible="none"):
    """Key of the topology of a streams group."""

    group_id: str


class StreamsGroupTopologyValue(Struct, key=23, versions="0", flexible="0+"):
    """Topology of a streams group: its subtopologies and their topics."""

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


class TopicConfig(Struct):
    key: str
    value: str


class TopicInfo(Struct):
    name: str
    partitions: int32
    replication_factor: int16
    topic_configs: list[TopicConfig]
