"""The coordinators of this broker by the internal topic in which each keeps its state.

A coordinator has one shard for each partition of its topic. What happens to the partitions reaches
it from here; no other module asks which topic a partition belongs to.

Kafka: the parts of BrokerMetadataPublisher and KafkaApis.getCoordinator that name topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.server.broker.topic_auto_creation import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.replication.partition import Partition
    from ottla.types import Uuid

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
SHARE_KEY: Final = 2
KEY_TYPES: Final = {
    GROUP_KEY: OFFSETS_TOPIC,
    TRANSACTION_KEY: TRANSACTION_STATE_TOPIC,
    SHARE_KEY: SHARE_STATE_TOPIC,
}
"""The topics by FindCoordinator's key types."""


class Coordinator(Protocol):
    """What the registry needs of a coordinator; partitions are those of its internal topic."""

    def partition_for(self, key: str) -> int:
        """Return the partition that owns a group, a transactional id or a share partition."""

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load a partition of which this node became the leader."""

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """Unload a partition that another node leads, or that was deleted (without an epoch)."""

    def on_high_watermark(self, partition: int, offset: int) -> None:
        """Complete operations up to a committed offset."""

    def on_topics_deleted(self, topics: Iterable[tuple[str, Uuid]]) -> None:
        """Forget what belongs to deleted topics, given by name and id."""

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Apply that topics are new, deleted, or have other partitions or racks."""

    def close(self) -> None:
        """Unload all partitions; pending responses fail with NOT_COORDINATOR."""


class FoundCoordinator(NamedTuple):
    """The coordinator of a key type and its topic."""

    topic: str
    coordinator: Coordinator


class Coordinators:
    """Passes events of partitions of internal topics on to their coordinators."""

    def __init__(self, by_topic: Mapping[str, Coordinator]) -> None:
        self._by_topic = dict(by_topic)

    def of_key_type(self, key_type: int) -> FoundCoordinator | None:
        """Return the coordinator for FindCoordinator's key type; None for one not served."""
        topic = KEY_TYPES.get(key_type)
        coordinator = None if topic is None else self._by_topic.get(topic)
        if topic is None or coordinator is None:
            return None
        return FoundCoordinator(topic, coordinator)

    def partition_of_group(self, group_id: str) -> TopicPartition:
        """Return the partition that holds a group's offsets."""
        topic = KEY_TYPES[GROUP_KEY]
        return TopicPartition(topic, self._by_topic[topic].partition_for(group_id))

    def partition_of_transaction(self, transactional_id: str) -> TopicPartition:
        """Return the partition that holds the state of a transactional id."""
        topic = KEY_TYPES[TRANSACTION_KEY]
        return TopicPartition(topic, self._by_topic[topic].partition_for(transactional_id))

    def commit_listener(self, topic: str) -> Callable[[Partition], None] | None:
        """Return the listener of a partition's high watermark; None for users' topics."""
        coordinator = self._by_topic.get(topic)
        if coordinator is None:
            return None
        committed = coordinator.on_high_watermark
        return lambda partition: committed(
            partition.topic_partition.partition, partition.log.high_watermark
        )

    def elected(self, partition: Partition) -> None:
        """Load the shard of a partition that this node leads."""
        topic, index = partition.topic_partition
        coordinator = self._by_topic.get(topic)
        if coordinator is not None:
            coordinator.on_elected(index, partition.leader_epoch)

    def resigned(self, topic: str, index: int, leader_epoch: int | None = None) -> None:
        """Unload the shard of a partition led elsewhere since leader_epoch, or removed."""
        coordinator = self._by_topic.get(topic)
        if coordinator is not None:
            coordinator.on_resigned(index, leader_epoch)

    def topic_deleted(self, name: str, topic_id: Uuid) -> None:
        """Notify the other coordinators of a deleted topic; its own shards end with their logs."""
        for topic, coordinator in self._by_topic.items():
            if topic != name:
                coordinator.on_topics_deleted([(name, topic_id)])

    def topics_changed(self, names: Iterable[str]) -> None:
        """Notify the coordinators of topics that are new, deleted, or have other partitions."""
        changed = tuple(names)
        for coordinator in self._by_topic.values():
            coordinator.on_topics_changed(changed)

    def close(self) -> None:
        """Unload all shards."""
        for coordinator in self._by_topic.values():
            coordinator.close()
