"""A streams group: replayed state in timelines.

Kafka: org.apache.kafka.coordinator.group.streams.StreamsGroup.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.coordinator.group.member_group import MemberGroup, Owners
from ottla.coordinator.group.streams.member import StreamsMember
from ottla.coordinator.group.streams.tasks import Tasks
from ottla.timeline import LATEST_EPOCH, TimelineObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.coordinator.group.streams.configuration import ConfiguredTopology
    from ottla.coordinator.group.streams.tasks import EpochMap, TaskMap
    from ottla.coordinator.group.streams.topology import StreamsTopology
    from ottla.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatResponse
    from ottla.timeline import SnapshotRegistry

    Task: TypeAlias = tuple[str, int]

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
    they were listed last.
    """

    group_type = "Streams"
    protocol_type: str | None = STREAMS_PROTOCOL_TYPE

    def __init__(self, group_id: str, registry: SnapshotRegistry) -> None:
        super().__init__(group_id, registry)
        self.configured: ConfiguredTopology | None = None
        self.shutdown_member_id: str | None = None
        self.endpoint_epoch = 0
        self.endpoints: dict[str, ListedEndpoint] = {}
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
        if all(one.is_reconciled_to(assignment_epoch) for one in members.values()):
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
        return any(self.members[one].process_id == process_id for one in member_ids)

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
        if not self.members:
            self.shutdown_member_id = None

    def _move(self, member_id: str, new: StreamsMember | None) -> None:
        """Replace the tasks of a member."""
        old: StreamsMember | None = self.members.get(member_id)
        before, after = (
            () if one is None else (one.assigned, one.pending_revocation) for one in (old, new)
        )
        self.active_owners.move(
            member_id,
            {task for tasks in before for task in _pairs(tasks.active)},
            {task for tasks in after for task in _pairs(tasks.active)},
        )
        self.standby_owners.move(
            member_id,
            {task for tasks in before for task in _pairs(tasks.standby)},
            {task for tasks in after for task in _pairs(tasks.standby)},
        )
        self.warmup_owners.move(
            member_id,
            {task for tasks in before for task in _pairs(tasks.warmup)},
            {task for tasks in after for task in _pairs(tasks.warmup)},
        )


def _pairs(tasks: TaskMap | EpochMap) -> list[Task]:
    return [(key, partition) for key, partitions in tasks.items() for partition in partitions]
