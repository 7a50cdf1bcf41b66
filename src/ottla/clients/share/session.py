"""A share session with one node: the partitions that it knows, and the next epoch.

Kafka: org.apache.kafka.clients.consumer.internals.ShareSessionHandler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.types import TopicPartition, Uuid

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_HIGHEST_EPOCH = (1 << 31) - 1
SESSION_LOST = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})


class ClientShareSession:
    """The state of one session; epoch 0 begins it."""

    def __init__(self) -> None:
        self.epoch = INITIAL_EPOCH
        self.partitions: dict[TopicPartition, Uuid] = {}

    @property
    def is_new(self) -> bool:
        """Whether the node does not know the session."""
        return self.epoch == INITIAL_EPOCH

    def changes(
        self, requested: dict[TopicPartition, Uuid]
    ) -> tuple[list[tuple[Uuid, int]], list[tuple[Uuid, int]]]:
        """Return the added and the forgotten partitions, and store the requested ones."""
        before, self.partitions = self.partitions, requested
        return _missing(requested, before), _missing(before, requested)

    def answered(self) -> None:
        """Advance the epoch; after the highest one follows 1."""
        self.epoch = 1 if self.epoch == _HIGHEST_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Begin another session with the next request."""
        self.epoch = INITIAL_EPOCH
        self.partitions = {}


def _missing(
    these: dict[TopicPartition, Uuid], others: dict[TopicPartition, Uuid]
) -> list[tuple[Uuid, int]]:
    return [
        (topic_id, one.partition) for one, topic_id in these.items() if others.get(one) != topic_id
    ]


def by_topic(entries: Iterable[tuple[Uuid, int]]) -> dict[Uuid, list[int]]:
    """Return partitions by topic id, in the order of their first entries."""
    found: dict[Uuid, list[int]] = {}
    for topic_id, partition in entries:
        found.setdefault(topic_id, []).append(partition)
    return found
