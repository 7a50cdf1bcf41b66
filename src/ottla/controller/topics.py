"""Topics and partitions in the controller.

Kafka: the replayed half of org.apache.kafka.controller.ReplicationControlManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.controller.partitions.index import IndexedPartition, PartitionIndex
from ottla.controller.topic_names import has_collision_characters, unify_collision_characters
from ottla.errors import CorruptMessage
from ottla.metadata.partition import PartitionRegistration, registration_of
from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.protocol.records.metadata import (
        ClearElrRecord,
        PartitionChangeRecord,
        PartitionRecord,
        RemoveTopicRecord,
        TopicRecord,
    )
    from ottla.timeline import SnapshotRegistry
    from ottla.types import Uuid


class Located(NamedTuple):
    """A partition and where it is."""

    topic: TopicState
    partition_id: int
    partition: PartitionRegistration


class TopicState:
    """One incarnation of a topic."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, registry: SnapshotRegistry, name: str, topic_id: Uuid) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: TimelineDict[int, PartitionRegistration] = TimelineDict(registry)


class Topics:
    """All topics; only replay changes them."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._ids: TimelineDict[str, Uuid] = TimelineDict(registry)
        self._topics: TimelineDict[Uuid, TopicState] = TimelineDict(registry)
        self._similar: TimelineDict[str, tuple[str, ...]] = TimelineDict(registry)
        self.index = PartitionIndex(registry)

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[TopicState]:
        return iter(list(self._topics.values()))

    def by_name(self, name: str) -> TopicState | None:
        """Return the topic of this name."""
        topic_id = self._ids.get(name)
        return None if topic_id is None else self._topics[topic_id]

    def by_id(self, topic_id: Uuid) -> TopicState | None:
        """Return the topic of this id."""
        found: TopicState | None = self._topics.get(topic_id)
        return found

    def colliding(self, name: str) -> str | None:
        """Return an existing topic with the same name in metrics."""
        if not has_collision_characters(name):
            return None
        names: tuple[str, ...] = self._similar.get(unify_collision_characters(name), ())
        return names[0] if names else None

    def located(self, keys: Iterable[IndexedPartition]) -> list[Located]:
        """Return partitions by their keys; those that were deleted meanwhile are left out."""
        found = []
        for topic_id, partition_id in keys:
            topic = self._topics.get(topic_id)
            if topic is not None and partition_id in topic.partitions:
                found.append(Located(topic, partition_id, topic.partitions[partition_id]))
        return found

    # Replay

    def replay_topic(self, record: TopicRecord) -> None:
        """Add a topic."""
        if record.name in self._ids:
            raise CorruptMessage(f"Found duplicate TopicRecord for {record.name}")
        self._ids[record.name] = record.topic_id
        self._topics[record.topic_id] = TopicState(self._registry, record.name, record.topic_id)
        if has_collision_characters(record.name):
            unified = unify_collision_characters(record.name)
            self._similar[unified] = (*self._similar.get(unified, ()), record.name)

    def replay_partition(self, record: PartitionRecord) -> None:
        """Add a partition or replace it whole."""
        self._put(record.topic_id, record.partition_id, registration_of(record))

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """Change a partition."""
        old = self._topic(record.topic_id).partitions[record.partition_id]
        self._put(record.topic_id, record.partition_id, old.merge(record))

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Empty the eligible leaders of one topic, or of all when the name is empty."""
        for topic in [self.by_name(record.topic_name)] if record.topic_name else self:
            if topic is None:
                raise CorruptMessage(
                    f"Unable to find a topic named {record.topic_name} in order to clear its ELRs."
                )
            for partition_id, old in list(topic.partitions.items()):
                new = old.without_elr()
                if new is not old:
                    self._put(topic.topic_id, partition_id, new)

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """Remove a topic; return the name it had."""
        topic = self._topic(record.topic_id)
        for partition_id, partition in topic.partitions.items():
            self.index.update(IndexedPartition(topic.topic_id, partition_id), partition, None)
        del self._topics[record.topic_id]
        del self._ids[topic.name]
        if has_collision_characters(topic.name):
            unified = unify_collision_characters(topic.name)
            others = tuple(name for name in self._similar[unified] if name != topic.name)
            if others:
                self._similar[unified] = others
            else:
                del self._similar[unified]
        return topic.name

    def _put(self, topic_id: Uuid, partition_id: int, new: PartitionRegistration) -> None:
        partitions = self._topic(topic_id).partitions
        self.index.update(
            IndexedPartition(topic_id, partition_id), partitions.get(partition_id), new
        )
        partitions[partition_id] = new

    def _topic(self, topic_id: Uuid) -> TopicState:
        topic: TopicState | None = self._topics.get(topic_id)
        if topic is None:
            raise CorruptMessage(f"Can't find topic with ID {topic_id}")
        return topic
