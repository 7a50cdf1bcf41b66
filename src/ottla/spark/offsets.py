"""Offsets of a streaming query in Spark's checkpoint, with topic ids.

Kafka: org.apache.spark.sql.kafka010.{KafkaSourceOffset, JsonUtils}.

The JSON is the connector's, {"flights": {"0": 23, "1": 5}}, with the topic's id next to the
partitions: a recreated topic has another id, and the old offsets are not valid in it (KIP-516).
Offsets from progress reports can be used as startingOffsets. Where the group's offsets were reset
the end of the next micro-batch names the offset that each partition is read from: Spark's
checkpoint keeps it, so that a repeated micro-batch reads the same records. So does the end of a
query's first micro-batch, whose start Spark keeps nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.cluster_reader import OLD_OFFSETS, TopicRecreated
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.cluster_reader import TopicLayout

ID = "id"
FROM = "from"
START = "start"
NOT_PARTITIONS = frozenset({ID, FROM, START})


class SourceOffsets(NamedTuple):
    """The next offset of each partition, and the id of each topic as text ("" if unknown)."""

    positions: dict[TopicPartition, int]
    topic_ids: dict[str, str]
    resets: tuple[tuple[TopicPartition, int], ...] = ()
    """Where a micro-batch starts in partitions that were reset since the one before."""
    starts: tuple[tuple[TopicPartition, int], ...] = ()
    """Where the first micro-batch of a query starts."""

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the document that Spark writes to the checkpoint."""
        document: dict[str, dict[str, Any]] = {}
        for topic, topic_id in sorted(self.topic_ids.items()):
            document[topic] = {ID: topic_id} if topic_id else {}
        for part, offset in sorted(self.positions.items()):
            document.setdefault(part.topic, {})[str(part.partition)] = offset
        for name, found in ((FROM, self.resets), (START, self.starts)):
            for part, offset in found:
                document[part.topic].setdefault(name, {})[str(part.partition)] = offset
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Mapping[str, Any]]) -> SourceOffsets:
        """Parse a document of `to_json`; raises KafkaError for others."""
        try:
            positions = {
                TopicPartition(topic, int(partition)): int(offset)
                for topic, offsets in document.items()
                for partition, offset in offsets.items()
                if partition not in NOT_PARTITIONS
            }
            resets, starts = (
                tuple(
                    (TopicPartition(topic, int(partition)), int(offset))
                    for topic, offsets in document.items()
                    for partition, offset in offsets.get(name, {}).items()
                )
                for name in (FROM, START)
            )
            ids = {topic: str(offsets.get(ID, "")) for topic, offsets in document.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"the checkpoint holds no offsets of this source: {error}"
            ) from error
        return cls(positions, ids, resets, starts)


def ids_of(topics: Iterable[TopicLayout]) -> dict[str, str]:
    """Return the ids of topics as text; "" with brokers too old for topic ids."""
    return {topic.name: str(topic.topic_id) if topic.topic_id else "" for topic in topics}


def check_same_topics(known: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Raise KafkaError if a topic was recreated since its offsets were taken."""
    for name, topic_id in known.items():
        now = current.get(name, "")
        if topic_id and now and now != topic_id:
            raise TopicRecreated(name, OLD_OFFSETS)
