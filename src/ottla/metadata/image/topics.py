"""Topics and their partitions.

Kafka: org.apache.kafka.image.{TopicsImage, TopicImage, TopicsDelta}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.partition import PartitionRegistration, registration_of
from ottla.metadata.topic import TopicImage
from ottla.protocol.records.metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metadata.delta import MetadataDelta
    from ottla.types import Uuid


class TopicsImage:
    """Topics by id and by name."""

    __slots__ = ("by_id", "by_name")

    def __init__(self) -> None:
        self.by_id: dict[Uuid, TopicImage] = {}
        self.by_name: dict[str, TopicImage] = {}

    def partition(self, name: str, partition_id: int) -> PartitionRegistration | None:
        """Return a partition's registration, None when there is no such partition."""
        topic = self.by_name.get(name)
        return None if topic is None else topic.partitions.get(partition_id)

    def topic_id(self, name: str) -> Uuid | None:
        """Return the id of the topic that currently has this name."""
        topic = self.by_name.get(name)
        return None if topic is None else topic.topic_id

    def replay_topic(self, record: TopicRecord, delta: MetadataDelta) -> None:
        """Add a topic; a new topic replaces one of the same name, as in Kafka's image."""
        topic = TopicImage(record.name, record.topic_id)
        self.by_id[topic.topic_id] = topic
        self.by_name[topic.name] = topic
        delta.topics_created[topic.topic_id] = topic

    def replay_partition(self, record: PartitionRecord, delta: MetadataDelta) -> None:
        """Add a partition or replace it whole."""
        topic = self._topic(record.topic_id)
        old = topic.partitions.get(record.partition_id)
        self._note(delta, record.topic_id, record.partition_id, old)
        topic.put(record.partition_id, registration_of(record))

    def replay_partition_change(self, record: PartitionChangeRecord, delta: MetadataDelta) -> None:
        """Change a partition."""
        topic = self._topic(record.topic_id)
        old = topic.partitions.get(record.partition_id)
        if old is None:
            raise CorruptMessage(
                f"Unable to find partition {record.topic_id}:{record.partition_id}"
            )
        self._note(delta, record.topic_id, record.partition_id, old)
        topic.put(record.partition_id, old.merge(record))

    def replay_clear_elr(self, record: ClearElrRecord, delta: MetadataDelta) -> None:
        """Empty the eligible leaders of one topic, or of all when the name is empty."""
        if not record.topic_name:
            topics = list(self.by_id.values())
        else:
            found = self.by_name.get(record.topic_name)
            if found is None:
                raise CorruptMessage(
                    f"Unable to find a topic named {record.topic_name} in order to clear its ELRs."
                )
            topics = [found]
        for topic in topics:
            for partition_id, old in topic.partitions.items():
                new = old.without_elr()
                if new is not old:
                    self._note(delta, topic.topic_id, partition_id, old)
                    topic.put(partition_id, new)

    def replay_remove_topic(self, record: RemoveTopicRecord, delta: MetadataDelta) -> None:
        """Remove a topic; one that was created in the same delta is removed from it."""
        topic = self.by_id.pop(record.topic_id, None)
        if topic is None:
            raise CorruptMessage(f"Can't find topic with ID {record.topic_id} to remove.")
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
        delta.partitions_changed.pop(record.topic_id, None)
        if delta.topics_created.pop(record.topic_id, None) is None:
            delta.topics_deleted[record.topic_id] = topic

    def records(self, partition_version: int) -> Iterator[MessageAndVersion]:
        """Return the records of the current state; later changes do not affect them."""
        topics = [(topic, dict(topic.partitions)) for topic in self.by_id.values()]
        return _records(topics, partition_version)

    def _topic(self, topic_id: Uuid) -> TopicImage:
        topic = self.by_id.get(topic_id)
        if topic is None:
            raise CorruptMessage(f"Unable to find topic with ID {topic_id}.")
        return topic

    @staticmethod
    def _note(
        delta: MetadataDelta, topic_id: Uuid, partition_id: int, old: PartitionRegistration | None
    ) -> None:
        delta.partitions_changed.setdefault(topic_id, {}).setdefault(partition_id, old)


def _records(
    topics: list[tuple[TopicImage, dict[int, PartitionRegistration]]], partition_version: int
) -> Iterator[MessageAndVersion]:
    for topic, partitions in topics:
        yield MessageAndVersion(TopicRecord(name=topic.name, topic_id=topic.topic_id), 0)
        for partition_id in sorted(partitions):
            record = partitions[partition_id].to_record(
                topic.topic_id, partition_id, version=partition_version
            )
            yield MessageAndVersion(record, partition_version)
