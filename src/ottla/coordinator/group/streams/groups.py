"""The streams groups of one shard, with what their decisions depend on.

Kafka: the streams part of org.apache.kafka.coordinator.group.GroupMetadataManager's state.

`by_id` is replayed state. The timers are soft.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.coordinator.group.config import StreamsGroupConfig
from ottla.coordinator.group.kinds import KindOfGroups
from ottla.coordinator.group.streams.group import StreamsGroup

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ottla.coordinator.group.consumer.groups import ConsumerGroups


@dataclass(slots=True, eq=False, kw_only=True)
class StreamsGroups(KindOfGroups[StreamsGroup, StreamsGroupConfig]):
    """The state and dependencies of the modules of this package.

    consumer has the hashes of topics, which are the same for all kinds of groups.
    """

    kind = "Streams"
    group_class = StreamsGroup

    consumer: ConsumerGroups

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Compare the metadata of all groups that use these topics at their next heartbeat."""
        changed = set(names)
        for group in self.by_id.values():
            topology = group.topology
            if topology is not None and not changed.isdisjoint(topology.required_topics):
                group.fresh_epoch = None


def initial_delay_key(group_id: str) -> Hashable:
    """Return the key of the timer that delays the first assignment."""
    return "streams-initial-rebalance", group_id
