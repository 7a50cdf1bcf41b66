"""One incarnation of a topic in the metadata image.

Kafka: org.apache.kafka.image.TopicImage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ottla.metadata.partition import PartitionRegistration
    from ottla.types import Uuid


class TopicImage:
    """One incarnation of a topic."""

    __slots__ = ("change_count", "encoded", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, PartitionRegistration] = {}
        """Read-only outside this class."""
        self.encoded: dict[Hashable, tuple[int, bytes]] = {}
        """Responses about this topic, each with the `ClusterImage.change_count` it is of."""
        self.change_count = 0

    def put(self, partition_id: int, partition: PartitionRegistration) -> None:
        """Add or replace a partition."""
        self.partitions[partition_id] = partition
        self.change_count += 1
        self.encoded.clear()

    def __repr__(self) -> str:
        return f"TopicImage({self.name!r}, {self.topic_id}, {len(self.partitions)} partitions)"
