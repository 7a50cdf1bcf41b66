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
from ottla.protocol.records.streams_group import StreamsGroupMetadataKey

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ottla.coordinator.group.consumer.groups import ConsumerGroups


@dataclass(slots=True, eq=False, kw_only=True)
class StreamsGroups(KindOfGroups[StreamsGroup, StreamsGroupConfig]):
    """The state and dependencies of the modules of this package.

    consumer has the hashes of topics, which are the same for all kinds of groups.
    """

    kind = "Streams"
    group_class = StreamsGroup
    epoch_key = StreamsGroupMetadataKey

    consumer: ConsumerGroups


def initial_delay_key(group_id: str) -> Hashable:
    """Return the key of the timer that delays the first assignment."""
    return "streams-initial-rebalance", group_id
