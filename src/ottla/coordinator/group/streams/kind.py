"""Streams groups (KIP-1071): their records, their replay and their target.

Kafka: the streams part of org.apache.kafka.coordinator.group.GroupMetadataManager,
org.apache.kafka.coordinator.group.streams.StreamsCoordinatorRecordHelpers;
GroupMetadataManager.streamsGroupDescribe, StreamsGroup.asDescribedGroup;
org.apache.kafka.coordinator.group.streams.TargetAssignmentBuilder,
GroupMetadataManager.{maybeUpdateStreamsTargetAssignment, computeDelayedTargetAssignment}.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.coordinator.group.context import StreamsGroupConfig
from ottla.coordinator.group.group_kind import (
    GroupEnvironment,
    GroupKind,
    RecordType,
    Target,
    TargetDelay,
    with_epochs,
)
from ottla.coordinator.group.slices import SLICE, is_large
from ottla.coordinator.group.streams.assignor import (
    MemberSpec,
    StreamsAssignorInput,
    SubtopologySpec,
    assign,
)
from ottla.coordinator.group.streams.group import (
    NOT_VALIDATED,
    AssignedTasks,
    Endpoint,
    StreamsGroup,
    StreamsMember,
    StreamsMemberState,
    StreamsState,
    Tasks,
    task_map,
    without_epochs,
)
from ottla.coordinator.group.streams.topology import from_record
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.coordinator.runtime.java_hash import in_hash_map_order
from ottla.coordinator.runtime.shard import Result
from ottla.protocol.apis import streams_group_describe as api
from ottla.protocol.records import streams_group as schemas

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from ottla.coordinator.group.slices import Steps
    from ottla.coordinator.group.streams.configuration import ConfiguredTopology, InternalTopic
    from ottla.coordinator.group.streams.group import EpochMap, TaskMap
    from ottla.coordinator.group.streams.topology import StreamsTopology


_DescribedGroup = api.StreamsGroupDescribeResponse.DescribedGroup
_Subtopology = _DescribedGroup.Topology.Subtopology


def _topology(group: StreamsGroup, epoch: int) -> _DescribedGroup.Topology | None:
    """Return the topology with the counts of its topics, where they are known."""
    configured = group.configured
    if configured is not None and configured.is_ready:
        return _configured(configured)
    topology = group.topology_at(epoch)
    return None if topology is None else _as_sent(topology)


def _configured(topology: ConfiguredTopology) -> _DescribedGroup.Topology:
    return _DescribedGroup.Topology(
        epoch=topology.epoch,
        subtopologies=[
            _Subtopology(
                subtopology_id=key,
                source_topics=list(one.source_topics),
                repartition_sink_topics=list(one.repartition_sinks),
                state_changelog_topics=_internal(one.changelogs),
                repartition_source_topics=_internal(one.repartition_sources),
            )
            for key, one in sorted((topology.subtopologies or {}).items())
        ],
    )


def _internal(topics: Mapping[str, InternalTopic]) -> list[api.TopicInfo]:
    return [
        api.TopicInfo(
            name=one.name,
            partitions=one.partitions,
            replication_factor=one.replication_factor,
            topic_configs=[api.KeyValue(key=key, value=one.configs[key]) for key in one.configs],
        )
        for _, one in sorted(topics.items())
    ]


def _as_sent(topology: StreamsTopology) -> _DescribedGroup.Topology:
    return _DescribedGroup.Topology(
        epoch=topology.epoch,
        subtopologies=[
            _Subtopology(
                subtopology_id=key,
                source_topics=sorted(one.source_topics),
                repartition_sink_topics=sorted(one.repartition_sink_topics),
                state_changelog_topics=_sent(one.state_changelog_topics),
                repartition_source_topics=_sent(one.repartition_source_topics),
            )
            for key, one in sorted(topology.subtopologies.items())
        ],
    )


def _sent(topics: list[schemas.TopicInfo]) -> list[api.TopicInfo]:
    return [
        api.TopicInfo(
            name=info.name,
            partitions=info.partitions,
            replication_factor=info.replication_factor,
            topic_configs=[
                api.KeyValue(key=config.key, value=config.value) for config in info.topic_configs
            ],
        )
        for info in sorted(topics, key=lambda topic: topic.name)
    ]


def _assignment(tasks: Tasks) -> api.Assignment:
    return api.Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: TaskMap) -> list[api.TaskIds]:
    return [
        api.TaskIds(subtopology_id=key, partitions=list(partitions))
        for key, partitions in sorted(tasks.items())
    ]


_STANDBY_REPLICAS: Final = "num.standby.replicas"


class StreamsGroups(GroupKind[StreamsGroup, StreamsMember, Tasks, StreamsGroupConfig]):
    """Adds the topology, its validated epoch and the settings of the assignment."""

    name = StreamsGroup.group_type
    described_class = _DescribedGroup
    undescribed_fields: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    group_class = StreamsGroup
    member_class = StreamsMember
    states = StreamsState
    epoch_record = RecordType(
        17, schemas.StreamsGroupMetadataKey, schemas.StreamsGroupMetadataValue
    )
    member_record = RecordType(
        19, schemas.StreamsGroupMemberMetadataKey, schemas.StreamsGroupMemberMetadataValue
    )
    target_epoch_record = RecordType(
        20,
        schemas.StreamsGroupTargetAssignmentMetadataKey,
        schemas.StreamsGroupTargetAssignmentMetadataValue,
    )
    target_record = RecordType(
        21,
        schemas.StreamsGroupTargetAssignmentMemberKey,
        schemas.StreamsGroupTargetAssignmentMemberValue,
    )
    assignment_record = RecordType(
        22,
        schemas.StreamsGroupCurrentMemberAssignmentKey,
        schemas.StreamsGroupCurrentMemberAssignmentValue,
    )
    other_records = (
        RecordType(23, schemas.StreamsGroupTopologyKey, schemas.StreamsGroupTopologyValue),
    )
    member_fields = (
        "instance_id",
        "rack_id",
        "client_id",
        "client_host",
        "rebalance_timeout_ms",
        "topology_epoch",
        "process_id",
    )
    assignment_fields = (
        "member_epoch",
        "previous_member_epoch",
        "state",
        "assigned",
        "pending_revocation",
    )
    revoking_state = StreamsMemberState.UNREVOKED_TASKS

    def __init__(self, environment: GroupEnvironment) -> None:
        super().__init__(environment)
        self.settings = environment.dependencies.streams_settings

    def described_fields(self, group: StreamsGroup, epoch: int) -> dict[str, Any]:
        """Return the topology."""
        return {"topology": _topology(group, epoch)}

    def describe_member(
        self, member: StreamsMember, target: Tasks | None
    ) -> _DescribedGroup.Member:
        """Describe a member with its target."""
        assigned, endpoint = member.assigned, member.user_endpoint
        active = without_epochs(assigned.active)
        return _DescribedGroup.Member(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topology_epoch=member.topology_epoch,
            process_id=member.process_id,
            user_endpoint=(
                None if endpoint is None else api.Endpoint(host=endpoint.host, port=endpoint.port)
            ),
            client_tags=[
                api.KeyValue(key=key, value=value) for key, value in member.client_tags.items()
            ],
            task_offsets=[],
            task_end_offsets=[],
            assignment=_assignment(Tasks(active, assigned.standby, assigned.warmup)),
            target_assignment=_assignment(target or Tasks()),
            is_classic=False,
        )

    # ---------------------------------------------------------------- replay

    def apply_epoch(self, group: StreamsGroup, value: Any) -> None:
        """Apply a group epoch, the topology's validated epoch and the settings."""
        configs = {config.key: config.value for config in value.last_assignment_configs or ()}
        group.set_epoch(value.epoch, value.metadata_hash)
        group.set_validation(value.validated_topology_epoch, configs)

    def apply_other(self, group: StreamsGroup, _key: Any, value: Any, _offset: int) -> None:
        """Apply a topology."""
        group.set_topology(None if value is None else from_record(value))

    def read_member(self, value: Any) -> dict[str, Any]:
        """Return the fields of a member by the record of its metadata."""
        endpoint = value.user_endpoint
        return {
            **super().read_member(value),
            "user_endpoint": None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            "client_tags": {tag.key: tag.value for tag in value.client_tags},
        }

    def read_target(self, value: Any) -> Tasks:
        """Return a target by its record."""
        return Tasks(
            _read_ids(value.active_tasks),
            _read_ids(value.standby_tasks),
            _read_ids(value.warmup_tasks),
        )

    def read_assignment(self, value: Any) -> dict[str, Any]:
        """Return the fields of a member by the record of its assignment."""
        epoch = value.member_epoch
        return {
            "member_epoch": epoch,
            "previous_member_epoch": value.previous_member_epoch,
            "state": StreamsMemberState(value.state),
            "assigned": AssignedTasks(
                _read_epochs(value.active_tasks, epoch),
                _read_ids(value.standby_tasks),
                _read_ids(value.warmup_tasks),
            ),
            "pending_revocation": AssignedTasks(
                _read_epochs(value.active_tasks_pending_revocation, epoch),
                _read_ids(value.standby_tasks_pending_revocation),
                _read_ids(value.warmup_tasks_pending_revocation),
            ),
        }

    # ---------------------------------------------------------------- records

    def group_epoch(
        self,
        group_id: str,
        epoch: int,
        metadata_hash: int,
        validated_epoch: int = NOT_VALIDATED,
        configs: Mapping[str, str] | None = None,
    ) -> CoordinatorRecord:
        """Return the record of a group epoch."""
        record = super().group_epoch(group_id, epoch, metadata_hash)
        record.value.validated_topology_epoch = validated_epoch
        record.value.last_assignment_configs = [
            schemas.LastAssignmentConfig(key=key, value=value)
            for key, value in sorted((configs or {}).items())
        ]
        return record

    def topology(
        self, group_id: str, value: schemas.StreamsGroupTopologyValue
    ) -> CoordinatorRecord:
        """Return the record of a topology."""
        return CoordinatorRecord(schemas.StreamsGroupTopologyKey(group_id=group_id), value)

    def written_fields(self, member: StreamsMember) -> dict[str, Any]:
        """Return the endpoint and the tags."""
        endpoint = member.user_endpoint
        return {
            "user_endpoint": None
            if endpoint is None
            else schemas.Endpoint(host=endpoint.host, port=endpoint.port),
            "client_tags": [
                schemas.KeyValue(key=key, value=value)
                for key, value in sorted(member.client_tags.items())
            ],
        }

    def target_value(self, target: Tasks) -> schemas.StreamsGroupTargetAssignmentMemberValue:
        """Return the value of a target."""
        return schemas.StreamsGroupTargetAssignmentMemberValue(
            active_tasks=_written_ids(target.active),
            standby_tasks=_written_ids(target.standby),
            warmup_tasks=_written_ids(target.warmup),
        )

    def assignment_value(
        self, member: StreamsMember
    ) -> schemas.StreamsGroupCurrentMemberAssignmentValue:
        """Return the value of a member's state, epochs and tasks."""
        assigned, pending = member.assigned, member.pending_revocation
        return schemas.StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=int(member.state),
            active_tasks=_with_epochs(assigned.active),
            standby_tasks=_without_epochs(assigned.standby),
            warmup_tasks=_without_epochs(assigned.warmup),
            active_tasks_pending_revocation=_with_epochs(pending.active),
            standby_tasks_pending_revocation=_without_epochs(pending.standby),
            warmup_tasks_pending_revocation=_without_epochs(pending.warmup),
        )

    def last_tombstones(self, group: StreamsGroup) -> list[CoordinatorRecord]:
        """Return the records that remove a group without members and target."""
        topology = schemas.StreamsGroupTopologyKey(group_id=group.group_id)
        return [*super().last_tombstones(group), CoordinatorRecord(topology)]

    def target_order(self, target: Mapping[str, Tasks]) -> Iterable[str]:
        """Return the members of a target in the order of Kafka's records."""
        return in_hash_map_order(target)

    # ---------------------------------------------------------------- target

    def configs(self, group_id: str) -> dict[str, str]:
        """Return the settings of the assignment, as they are recorded."""
        return {_STANDBY_REPLICAS: str(self.settings(group_id).standby_replicas)}

    def last_target(self, group: StreamsGroup, member: StreamsMember) -> Tasks:
        """Return the target that was computed last for a member."""
        return group.target.get(member.member_id) or Tasks()

    def update_target(
        self,
        group: StreamsGroup,
        group_epoch: int,
        member: StreamsMember,
        output: list[CoordinatorRecord],
    ) -> Target:
        """Return the target of a member as for all kinds, but none before the group's first."""
        group_id = group.group_id
        is_computed = not group.assignment_timestamp_ms and self.target_key(group_id) in self.timers
        if is_computed or _initial_delay_key(group_id) in self.timers:
            return Target(group.assignment_epoch, Tasks(), TargetDelay.INITIAL)
        return super().update_target(group, group_epoch, member, output)

    def compute_target(
        self, group: StreamsGroup, members: Mapping[str, StreamsMember]
    ) -> Steps[dict[str, Tasks]]:
        """Compute the targets of a group's members; none while its topics are not right."""
        topology = group.configured
        if topology is None or not topology.is_ready or topology.subtopologies is None:
            return {member_id: Tasks() for member_id in members}
        specs = {}
        for position, (member_id, member) in enumerate(members.items()):
            if position % SLICE == SLICE - 1:
                yield
            specs[member_id] = MemberSpec(member.process_id, self.last_target(group, member))
        subtopologies = {
            key: SubtopologySpec(subtopology.task_count, bool(subtopology.changelogs))
            for key, subtopology in topology.subtopologies.items()
        }
        replicas = self.settings(group.group_id).standby_replicas
        return (yield from assign(StreamsAssignorInput(specs, subtopologies, replicas)))

    def delay_first_target(self, group_id: str) -> None:
        """Wait for more members before the tasks of an empty group are assigned."""
        delay_ms, key = (
            self.settings(group_id).initial_rebalance_delay_ms,
            _initial_delay_key(group_id),
        )
        if delay_ms > 0 and key not in self.timers:
            self.timers.schedule(key, delay_ms, lambda: self._end_initial_delay(group_id))

    def _end_initial_delay(self, group_id: str) -> Result[None]:
        group, result = self.find(group_id), Result(None)
        if group is None or group.is_empty or group.configured is None:
            return result
        if is_large(group) and not group.assignment_timestamp_ms:
            self.begin_target(group_id)  # no member waits for it in this turn
        else:
            member = next(iter(group.members.values()))
            self.update_target(group, group.epoch, member, result.records)
        return result

    # ---------------------------------------------------------------- members' timers

    def remove(self, group: StreamsGroup, member: StreamsMember) -> Result[None]:
        """Remove a member whose time is over."""
        return Result(None, self.removal_records(group, member))

    def removal_records(
        self, group: StreamsGroup, member: StreamsMember
    ) -> list[CoordinatorRecord]:
        """Return the records that remove a member and raise the group epoch; end its timers."""
        group_id = group.group_id
        self.cancel_timers(group_id, member.member_id)
        return [
            *self.member_tombstones(group_id, member.member_id),
            self.group_epoch(
                group_id,
                group.epoch + 1,
                group.metadata_hash,
                group.validated_epoch,
                group.assignment_configs,
            ),
        ]


def _initial_delay_key(group_id: str) -> Hashable:
    return "streams-initial-rebalance", group_id


def _read_ids(tasks: list[Any]) -> TaskMap:
    return task_map((task.subtopology_id, task.partitions) for task in tasks)


def _read_epochs(tasks: list[schemas.TaskIdsAndEpochs], member_epoch: int) -> EpochMap:
    return {
        task.subtopology_id: with_epochs(task.partitions, task.assignment_epochs, member_epoch)
        for task in tasks
    }


def _written_ids(tasks: TaskMap) -> list[schemas.TaskIds]:
    return [
        schemas.TaskIds(subtopology_id=key, partitions=list(partitions))
        for key, partitions in sorted(tasks.items())
    ]


def _with_epochs(tasks: EpochMap) -> list[schemas.TaskIdsAndEpochs]:
    return [
        schemas.TaskIdsAndEpochs(
            subtopology_id=key,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[partition] for partition in sorted(epochs)],
        )
        for key, epochs in sorted(tasks.items())
    ]


def _without_epochs(tasks: TaskMap) -> list[schemas.TaskIdsAndEpochs]:
    return [
        schemas.TaskIdsAndEpochs(subtopology_id=key, partitions=list(partitions))
        for key, partitions in sorted(tasks.items())
    ]
