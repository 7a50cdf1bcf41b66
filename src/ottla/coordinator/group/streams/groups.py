"""The streams groups of one shard, with what their decisions depend on.

Kafka: the streams part of org.apache.kafka.coordinator.group.GroupMetadataManager's state.

`by_id` is replayed state. The timers are soft.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.errors import ErrorCode, KafkaError
from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from ottla.clock import Clock
    from ottla.coordinator.group.config import StreamsGroupConfig
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.group.context import TopicNames
    from ottla.coordinator.runtime import ShardTimers
    from ottla.timeline import SnapshotRegistry


@dataclass(slots=True, eq=False)
class StreamsGroups:
    """The state and dependencies of the modules of this package.

    settings returns a group's settings in force: those of the broker, bounded, and the group's own.
    consumer has the hashes of topics, which are the same for all kinds of groups.
    """

    registry: SnapshotRegistry
    timers: ShardTimers
    clock: Clock
    topics: TopicNames
    settings: Callable[[str], StreamsGroupConfig]
    consumer: ConsumerGroups
    rebalances: int = 0
    by_id: TimelineDict[str, StreamsGroup] = field(init=False)

    def __post_init__(self) -> None:
        self.by_id = TimelineDict(self.registry)

    def find(self, group_id: str) -> StreamsGroup | None:
        """Return the group; None if it does not exist."""
        found: StreamsGroup | None = self.by_id.get(group_id)
        return found

    def get(self, group_id: str) -> StreamsGroup:
        """Return the group; raises GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        return group

    def new(self, group_id: str) -> StreamsGroup:
        """Return an empty group; its first record adds it."""
        return StreamsGroup(group_id, self.registry)

    def restore(self, group_id: str) -> StreamsGroup:
        """Return the group of a record; add it if the record is its first."""
        group = self.find(group_id)
        if group is None:
            group = self.by_id[group_id] = self.new(group_id)
        return group

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        """End both timers of a member."""
        self.timers.cancel(session_key(group_id, member_id))
        self.timers.cancel(rebalance_key(group_id, member_id))

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Compare the metadata of all groups that use these topics at their next heartbeat."""
        changed = set(names)
        for group in self.by_id.values():
            topology = group.topology
            if topology is not None and not changed.isdisjoint(topology.required_topics):
                group.fresh_epoch = None


def session_key(group_id: str, member_id: str) -> Hashable:
    """Return the key of a member's session timer."""
    return "streams-session", group_id, member_id


def rebalance_key(group_id: str, member_id: str) -> Hashable:
    """Return the key of the timer within which a member must give up tasks."""
    return "streams-rebalance", group_id, member_id


def initial_delay_key(group_id: str) -> Hashable:
    """Return the key of the timer that delays the first assignment."""
    return "streams-initial-rebalance", group_id
