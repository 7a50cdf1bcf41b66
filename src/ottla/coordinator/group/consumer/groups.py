"""The consumer groups of one shard, with what their decisions depend on.

Kafka: the consumer part of org.apache.kafka.coordinator.group.GroupMetadataManager's state.

`by_id` is replayed state. The timers, `topic_hashes`, `topics_version` and `resolving`
(groups whose patterns are being resolved) are soft.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.errors import ErrorCode, KafkaError
from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from ottla.clock import Clock
    from ottla.coordinator.group.config import ConsumerGroupConfig
    from ottla.coordinator.group.consumer.member import ConsumerMember
    from ottla.coordinator.group.context import TopicNames
    from ottla.coordinator.runtime import Result, ShardTimers
    from ottla.timeline import SnapshotRegistry


Downgrade: TypeAlias = "Callable[[ConsumerGroup, Sequence[ConsumerMember]], Result[None] | None]"


def _stays(_group: ConsumerGroup, _leaving: Sequence[ConsumerMember]) -> Result[None] | None:
    return None


@dataclass(slots=True, eq=False)
class ConsumerGroups:
    """The state and dependencies of the modules of this package.

    settings returns a group's settings in force: those of the broker, bounded, and the group's own.
    new_member_id returns an id for members that bring none. downgrade makes a group classic whose
    last member of the consumer protocol leaves; None where it stays a consumer group.
    """

    registry: SnapshotRegistry
    timers: ShardTimers
    clock: Clock
    topics: TopicNames
    settings: Callable[[str], ConsumerGroupConfig]
    new_member_id: Callable[[], str]
    downgrade: Downgrade = _stays
    topic_hashes: dict[str, int] = field(default_factory=dict)
    resolving: set[str] = field(default_factory=set)
    topics_version: int = 0
    rebalances: int = 0
    """Raised group epochs since the shard was loaded."""
    by_id: TimelineDict[str, ConsumerGroup] = field(init=False)

    def __post_init__(self) -> None:
        self.by_id = TimelineDict(self.registry)
        self.topics_version = self.topics.metadata_offset

    def find(self, group_id: str) -> ConsumerGroup | None:
        """Return the group; None if it does not exist."""
        found: ConsumerGroup | None = self.by_id.get(group_id)
        return found

    def get(self, group_id: str) -> ConsumerGroup:
        """Return the group; raises GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return group

    def new(self, group_id: str) -> ConsumerGroup:
        """Return an empty group; its first record adds it."""
        return ConsumerGroup(group_id, self.registry)

    def restore(self, group_id: str) -> ConsumerGroup:
        """Return the group of a record; add it if the record is its first."""
        group = self.find(group_id)
        if group is None:
            group = self.by_id[group_id] = self.new(group_id)
        return group

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        """End all timers of a member."""
        self.timers.cancel(session_key(group_id, member_id))
        self.timers.cancel(rebalance_key(group_id, member_id))
        self.timers.cancel(join_key(group_id, member_id))
        self.timers.cancel(sync_key(group_id, member_id))

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Compare the metadata of all groups that read these topics at their next heartbeat."""
        changed = tuple(names)
        self.topics_version = self.topics.metadata_offset
        for name in changed:
            self.topic_hashes.pop(name, None)
        for group in self.by_id.values():
            if group.regex_counts or any(group.is_subscribed_to(name) for name in changed):
                group.fresh_epoch = None


def session_key(group_id: str, member_id: str) -> Hashable:
    """Return the key of a member's session timer."""
    return "consumer-session", group_id, member_id


def rebalance_key(group_id: str, member_id: str) -> Hashable:
    """Return the key of the timer within which a member must give up partitions."""
    return "consumer-rebalance", group_id, member_id


def join_key(group_id: str, member_id: str) -> Hashable:
    """Return the key of the timer within which a member of the classic protocol must rejoin."""
    return "consumer-join", group_id, member_id


def sync_key(group_id: str, member_id: str) -> Hashable:
    """Return the key of the timer within which a member of the classic protocol must sync."""
    return "consumer-sync", group_id, member_id
