"""The share groups of one shard, with what their decisions depend on.

Kafka: the share part of org.apache.kafka.coordinator.group.GroupMetadataManager's state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.coordinator.group.share.group import ShareGroup
from ottla.errors import ErrorCode, KafkaError
from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from ottla.clock import Clock
    from ottla.coordinator.group.config import ShareGroupConfig
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.group.context import TopicNames
    from ottla.coordinator.runtime import ShardTimers
    from ottla.timeline import SnapshotRegistry


@dataclass(slots=True, eq=False)
class ShareGroups:
    """The state and dependencies of the modules of this package.

    settings returns a group's settings in force. consumer has the hashes of topics, which both
    kinds of groups share.
    """

    registry: SnapshotRegistry
    timers: ShardTimers
    clock: Clock
    topics: TopicNames
    settings: Callable[[str], ShareGroupConfig]
    consumer: ConsumerGroups
    rebalances: int = 0
    """Raised group epochs since the shard was loaded."""
    by_id: TimelineDict[str, ShareGroup] = field(init=False)

    def __post_init__(self) -> None:
        self.by_id = TimelineDict(self.registry)

    def find(self, group_id: str) -> ShareGroup | None:
        """Return the group; None if it does not exist."""
        found: ShareGroup | None = self.by_id.get(group_id)
        return found

    def get(self, group_id: str) -> ShareGroup:
        """Return the group; raises GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return group

    def new(self, group_id: str) -> ShareGroup:
        """Return an empty group; its first record adds it."""
        return ShareGroup(group_id, self.registry)

    def restore(self, group_id: str) -> ShareGroup:
        """Return the group of a record; add it if the record is its first."""
        group = self.find(group_id)
        if group is None:
            group = self.by_id[group_id] = self.new(group_id)
        return group

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Compare the metadata of all groups that read these topics at their next heartbeat."""
        changed = tuple(names)
        for group in self.by_id.values():
            if any(group.is_subscribed_to(name) for name in changed):
                group.fresh_epoch = None


def session_key(group_id: str, member_id: str) -> Hashable:
    """Return the key of a member's session timer."""
    return "share-session", group_id, member_id
