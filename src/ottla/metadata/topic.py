"""One incarnation of a topic in the metadata image.

Kafka: org.apache.kafka.image.TopicImage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.metadata.partition import PartitionRegistration
    from ottla.types import Uuid


class TopicImage:
    """One incarnation of a topic."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, PartitionRegistration] = {}

    def __repr__(self) -> str:
        return f"TopicImage({self.name!r}, {self.topic_id}, {len(self.partitions)} partitions)"
