"""A streams group, its members and their tasks: replayed state in timelines.

Kafka: org.apache.kafka.coordinator.group.streams.StreamsGroup;
org.apache.kafka.coordinator.group.streams.{StreamsGroupMember, MemberState};
org.apache.kafka.coordinator.group.streams.{TasksTuple, TasksTupleWithEpochs}.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.coordinator.group.member_group import MemberGroup, Owners
from ottla.timeline import LATEST_EPOCH, TimelineObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.coordinator.group.streams.configuration import ConfiguredTopology
    from ottla.coordinator.group.streams.topology import StreamsTopology
    from ottla.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatResponse
    from ottla.timeline import SnapshotRegistry

    Task: TypeAlias = tuple[str, int]

TaskMap: TypeAlias = "Mapping[str, tuple[int, ...]]"
"""Partitions by subtopology, rising."""
EpochMap: TypeAlias = "Mapping[str, Mapping[int, int]]"
"""Partitions by subtopology, each with the epoch in which it was assigned (KIP-1251)."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks of a target assignment, or those that a member says it owns."""

    active: TaskMap = field(default_factory=dict)
    standby: TaskMap = field(default_factory=dict)
    warmup: TaskMap = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are none of any kind."""
        return not (self.active or self.standby or self.warmup)

    def has_any_of(self, other: AssignedTasks) -> bool:
        """Whether a task is in both, as the same kind."""
        return (
            _overlap(self.active, other.active)
            or _overlap(self.standby, other.standby)
            or _overlap(self.warmup, other.warmup)
        )


@dataclass(frozen=True, slots=True)
class AssignedTasks:
    """Tasks of a member's current assignment; active ones with their assignment epochs."""

    active: EpochMap = field(default_factory=dict)
    standby: TaskMap = field(default_factory=dict)
    warmup: TaskMap = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are none of any kind."""
        return not (self.active or self.standby or self.warmup)

    @property
    def tasks(self) -> Tasks:
        """The tasks without their epochs."""
        return Tasks(without_epochs(self.active), self.standby, self.warmup)

    def merge(self, other: AssignedTasks) -> AssignedTasks:
        """Return the tasks of both."""
        active = {key: dict(value) for key, value in self.active.items()}
        for key, epochs in other.active.items():
            active.setdefault(key, {}).update(epochs)
        return AssignedTasks(
            {key: dict(sorted(value.items())) for key, value in active.items()},
            _union(self.standby, other.standby),
            _union(self.warmup, other.warmup),
        )


def _overlap(
    tasks: TaskMap, others: Mapping[str, tuple[int, ...]] | Mapping[str, Mapping[int, int]]
) -> bool:
    return any(
        partition in others.get(subtopology_id, ())
        for subtopology_id, partitions in tasks.items()
        for partition in partitions
    )


def _union(first: TaskMap, second: TaskMap) -> TaskMap:
    return {
        key: tuple(sorted({*first.get(key, ()), *second.get(key, ())}))
        for key in dict.fromkeys((*first, *second))
    }


def task_map(pairs: Iterable[tuple[str, Iterable[int]]]) -> TaskMap:
    """Return partitions by subtopology, sorted and without duplicates."""
    return {key: tuple(sorted(set(partitions))) for key, partitions in pairs}


def without_epochs(tasks: EpochMap) -> TaskMap:
    """Return the tasks alone."""
    return task_map(tasks.items())


class StreamsMemberState(IntEnum):
    """Progress of a member towards its target assignment, by the numbers of its records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, _value: object) -> StreamsMemberState:
        return cls.UNKNOWN  # of a later release


class Endpoint(NamedTuple):
    """Where a process answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member; the mappings are never changed in place."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: AssignedTasks = field(default_factory=AssignedTasks)
    pending_revocation: AssignedTasks = field(default_factory=AssignedTasks)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has reached the target assignment of an epoch."""
        return self.state is StreamsMemberState.STABLE and self.member_epoch == assignment_epoch

    def moved(
        self,
        state: StreamsMemberState,
        epoch: int,
        assigned: AssignedTasks,
        pending_revocation: AssignedTasks,
    ) -> StreamsMember:
        """Return the member with another state and assignment; its epoch becomes the previous."""
        return replace(
            self,
            state=state,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def assignment_epoch(self, subtopology_id: str, partition: int) -> int | None:
        """Return the epoch in which an active task was assigned; None if it is not the member's."""
        epoch = self.assigned.active.get(subtopology_id, {}).get(partition)
        if epoch is None:
            return self.pending_revocation.active.get(subtopology_id, {}).get(partition)
        return epoch


STREAMS_PROTOCOL_TYPE: Final = "streams"
NOT_VALIDATED: Final = -1
"""The validated epoch of a topology whose topics are not right yet."""


class StreamsState(StrEnum):
    """States in Kafka's spelling."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ListedEndpoint(NamedTuple):
    """An entry in a list of endpoints, and the member and topology that it was made from."""

    member: StreamsMember
    topology: ConfiguredTopology
    listed: StreamsGroupHeartbeatResponse.EndpointToPartitions


class StreamsGroup(MemberGroup[StreamsMember, Tasks]):
    """Adds the topology and the owners of tasks.

    Soft: configured, the topology with the topics of the cluster; shutdown_member_id, the member
    that requested the end of the application; the endpoint epoch, and the endpoints by member as
    they were listed last; the connection over which each member was last sent its tasks.
    """

    group_type = "Streams"
    protocol_type: str | None = STREAMS_PROTOCOL_TYPE

    def __init__(self, group_id: str, registry: SnapshotRegistry) -> None:
        super().__init__(group_id, registry)
        self.configured: ConfiguredTopology | None = None
        self.shutdown_member_id: str | None = None
        self.endpoint_epoch = 0
        self.endpoints: dict[str, ListedEndpoint] = {}
        self.connection_ids: dict[str, str] = {}
        self._validated_epoch: TimelineObject[int] = TimelineObject(registry, 0)
        self._configs: TimelineObject[Mapping[str, str]] = TimelineObject(registry, {})
        self._topology: TimelineObject[StreamsTopology | None] = TimelineObject(registry, None)
        self.active_owners: Owners[Task] = Owners(registry)
        self.standby_owners: Owners[Task] = Owners(registry)
        self.warmup_owners: Owners[Task] = Owners(registry)

    # ---------------------------------------------------------------- queries

    @property
    def validated_epoch(self) -> int:
        """The epoch of the topology whose topics were right; NOT_VALIDATED while they are not."""
        return self._validated_epoch.value

    @property
    def assignment_configs(self) -> Mapping[str, str]:
        """The settings of the last assignment, sorted."""
        return dict(sorted(self._configs.value.items()))

    @property
    def topology(self) -> StreamsTopology | None:
        """The topology; None before the group's first record."""
        return self._topology.value

    def topology_at(self, epoch: int) -> StreamsTopology | None:
        """Return the topology in a state of the log."""
        return self._topology.at(epoch)

    def state_at(self, epoch: int = LATEST_EPOCH) -> StreamsState:
        """Return the group's state."""
        members = self.members.at(epoch)
        group_epoch, assignment_epoch = self.epochs_at(epoch)
        topology = self.topology_at(epoch)
        if not members:
            return StreamsState.EMPTY
        if topology is None or topology.epoch != self._validated_epoch.at(epoch):
            return StreamsState.NOT_READY
        if group_epoch > assignment_epoch:
            return StreamsState.ASSIGNING
        if all(member.is_reconciled_to(assignment_epoch) for member in members.values()):
            return StreamsState.STABLE
        return StreamsState.RECONCILING

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the topology of members reads a topic."""
        topology = self.topology
        return not self.is_empty and topology is not None and topic in topology.source_topics

    def reads_any(self, names: frozenset[str]) -> bool:
        """Whether the topology needs one of these topics."""
        topology = self.topology
        return topology is not None and not names.isdisjoint(topology.required_topics)

    def is_in_process(self, member_ids: Iterable[str], process_id: str) -> bool:
        """Whether one of these members is a thread of a process."""
        return any(self.members[member_id].process_id == process_id for member_id in member_ids)

    # ---------------------------------------------------------------- replay

    def set_validation(self, validated_epoch: int, configs: Mapping[str, str]) -> None:
        """Apply the topology's validated epoch and the settings of the assignment."""
        self._validated_epoch.value = validated_epoch
        self._configs.value = configs

    def set_topology(self, topology: StreamsTopology | None) -> None:
        """Apply a topology."""
        self._topology.value = topology

    def put(self, member: StreamsMember) -> None:
        """Add a member or replace it, with its tasks."""
        self._move(member.member_id, member)
        self.members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        """Remove a member; no effect for others."""
        self._move(member_id, None)
        self.members.pop(member_id, None)
        self.connection_ids.pop(member_id, None)
        if not self.members:
            self.shutdown_member_id = None

    def _move(self, member_id: str, new: StreamsMember | None) -> None:
        old: StreamsMember | None = self.members.get(member_id)
        before, after = (
            () if member is None else (member.assigned, member.pending_revocation)
            for member in (old, new)
        )
        self.active_owners.move(
            member_id,
            {task for tasks in before for task in tasks_of(tasks.active)},
            {task for tasks in after for task in tasks_of(tasks.active)},
        )
        self.standby_owners.move(
            member_id,
            {task for tasks in before for task in tasks_of(tasks.standby)},
            {task for tasks in after for task in tasks_of(tasks.standby)},
        )
        self.warmup_owners.move(
            member_id,
            {task for tasks in before for task in tasks_of(tasks.warmup)},
            {task for tasks in after for task in tasks_of(tasks.warmup)},
        )


def tasks_of(tasks: TaskMap | EpochMap) -> list[Task]:
    """Return the tasks one by one: subtopology and partition."""
    return [(key, partition) for key, partitions in tasks.items() for partition in partitions]
