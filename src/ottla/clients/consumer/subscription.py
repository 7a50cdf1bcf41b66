"""A consumer's subscription and assignment, with the position of each partition.

Kafka: org.apache.kafka.clients.consumer.internals.SubscriptionState.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.clients.consumer.fetched import FetchedPartitionRecords
    from ottla.types import TopicPartition


class PartitionState:
    """One assigned partition.

    `position` is the offset of the next record to return, None until it is known; `fetch_position`
    the next offset to fetch, after the buffered records. `reset_to` is the timestamp, perhaps a
    special one, of a pending offset query. `generation` increases with every seek: responses to
    earlier requests are ignored.
    """

    __slots__ = (
        "buffered",
        "buffered_bytes",
        "fetch_position",
        "fetching",
        "generation",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "lookup_pending",
        "needs_committed",
        "needs_validation",
        "paused",
        "position",
        "preferred_replica",
        "preferred_until_ms",
        "reset_to",
        "retry_at_ms",
        "topic_partition",
        "validated_epoch",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.position: int | None = None
        self.fetch_position = 0
        self.leader_epoch = -1
        self.validated_epoch = -1
        self.needs_validation = False
        self.paused = False
        self.reset_to: int | None = None
        self.needs_committed = True
        self.lookup_pending = False
        self.retry_at_ms = 0
        self.fetching = False
        self.generation = 0
        self.buffered: deque[FetchedPartitionRecords] = deque()
        self.buffered_bytes = 0
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.preferred_replica = -1
        self.preferred_until_ms = 0

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        """Set the position; buffered records are dropped."""
        self.drop()
        self.position = self.fetch_position = offset
        self.leader_epoch = self.validated_epoch = leader_epoch
        self.needs_validation = leader_epoch >= 0
        self.needs_committed = False
        self.reset_to = None

    def request_reset(self, timestamp: int) -> None:
        """Request a position by timestamp in milliseconds or by a special one."""
        self.drop()
        self.position = None
        self.needs_committed = False
        self.reset_to = timestamp

    def request_committed(self) -> None:
        """Request the group's committed offset, or what auto.offset.reset says without one."""
        self.drop()
        self.position = None
        self.reset_to = None
        self.needs_committed = True

    def drop(self) -> None:
        """Drop buffered records and ignore responses in flight."""
        self.generation += 1
        self.buffered.clear()
        self.buffered_bytes = 0
        self.lookup_pending = False
        self.needs_validation = False


class SubscriptionPattern(NamedTuple):
    """A regular expression of RE2 that the coordinator resolves (KIP-848)."""

    pattern: str


class Subscription:
    """Topics by name, topics by pattern, or user-assigned partitions."""

    def __init__(self, *, exclude_internal: bool) -> None:
        self.topics: tuple[str, ...] = ()
        self.pattern: re.Pattern[str] | None = None
        self.pattern_applied = False
        self.remote_pattern: str | None = None
        self.user_assigned = False
        self.listener: Any = None
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self._exclude_internal = exclude_internal

    @property
    def is_set(self) -> bool:
        """Whether anything is subscribed to or assigned."""
        return self.user_assigned or self._has_topics

    @property
    def uses_group(self) -> bool:
        """Whether the group assigns the partitions."""
        return not self.user_assigned and self._has_topics

    @property
    def _has_topics(self) -> bool:
        return bool(self.topics) or self._has_pattern

    @property
    def _has_pattern(self) -> bool:
        return self.pattern is not None or self.remote_pattern is not None

    def subscribe(self, topics: Iterable[str], listener: Any) -> None:
        """Subscribe to topics by name."""
        self._refuse_mixing(user_assigned=False)
        self._refuse_other_kind(is_other=self._has_pattern)
        self.topics = tuple(dict.fromkeys(topics))
        self.listener = listener

    def subscribe_pattern(self, pattern: str | re.Pattern[str], listener: Any) -> None:
        """Subscribe to the topics whose full name matches."""
        self._refuse_mixing(user_assigned=False)
        has_names = self.pattern is None and bool(self.topics)
        self._refuse_other_kind(is_other=has_names or self.remote_pattern is not None)
        self.pattern = re.compile(pattern)
        self.pattern_applied = False
        self.listener = listener

    def subscribe_remote(self, pattern: str, listener: Any) -> None:
        """Subscribe to the topics that the coordinator finds."""
        self._refuse_mixing(user_assigned=False)
        self._refuse_other_kind(is_other=self.pattern is not None or bool(self.topics))
        self.remote_pattern = pattern
        self.listener = listener

    def match(self, names: Iterable[tuple[str, bool]]) -> bool:
        """Apply the pattern to (name, is internal) pairs; True if the topics changed."""
        assert self.pattern is not None
        found = tuple(
            sorted(
                name
                for name, internal in names
                if self.pattern.fullmatch(name) and not (internal and self._exclude_internal)
            )
        )
        changed = found != self.topics
        self.topics = found
        self.pattern_applied = True
        return changed

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign these partitions, without a group."""
        requested = list(partitions)
        self._refuse_mixing(user_assigned=True)
        self.user_assigned = bool(requested)
        self.replace(requested)

    def replace(self, requested: Iterable[TopicPartition]) -> None:
        """Set the assignment; remaining partitions keep their state."""
        before = self.partitions
        self.partitions = {
            partition: before.get(partition) or PartitionState(partition)
            for partition in dict.fromkeys(requested)
        }
        for partition in before.keys() - self.partitions.keys():
            before[partition].drop()

    def unsubscribe(self) -> None:
        """Clear the subscription and the assignment."""
        self.topics, self.pattern, self.user_assigned, self.listener = (), None, False, None
        self.remote_pattern = None
        self.replace(())

    def _refuse_mixing(self, *, user_assigned: bool) -> None:
        self._refuse_other_kind(is_other=self.uses_group if user_assigned else self.user_assigned)

    @staticmethod
    def _refuse_other_kind(*, is_other: bool) -> None:
        if is_other:
            raise IllegalStateError(
                "Subscription to topics, partitions and pattern are mutually exclusive"
            )

    def state(self, partition: TopicPartition) -> PartitionState:
        """Return the state of an assigned partition; IllegalStateError when it is not assigned."""
        found = self.partitions.get(partition)
        if found is None:
            raise IllegalStateError(f"No current assignment for partition {partition}")
        return found
