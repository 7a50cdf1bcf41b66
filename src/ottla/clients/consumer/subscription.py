"""What a consumer reads and where it is: the topics wanted, the partitions had, their positions.

Kafka: org.apache.kafka.clients.consumer.internals.SubscriptionState.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.clients.consumer.fetched import Fetched
    from ottla.types import TopicPartition

EARLIEST, LATEST = -2, -1


class PartitionState:
    """One assigned partition.

    `position` is the next offset the user gets, None until it is known; `fetch_position` the next
    offset to ask for, ahead of it by what is buffered. `reset_to` is the timestamp (or EARLIEST,
    LATEST) to look a position up with. `generation` rises with every seek, so that answers to
    older questions are recognised.
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
        "looking_up",
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
        self.looking_up = False
        self.retry_at_ms = 0
        self.fetching = False
        self.generation = 0
        self.buffered: deque[Fetched] = deque()
        self.buffered_bytes = 0
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.preferred_replica = -1
        self.preferred_until_ms = 0

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        """Continue at offset; what is buffered is dropped."""
        self.drop()
        self.position = self.fetch_position = offset
        self.leader_epoch = self.validated_epoch = leader_epoch
        self.needs_validation = leader_epoch >= 0
        self.needs_committed = False
        self.reset_to = None

    def request_reset(self, timestamp: int) -> None:
        """Look the position up by timestamp (EARLIEST, LATEST or milliseconds)."""
        self.drop()
        self.position = None
        self.needs_committed = False
        self.reset_to = timestamp

    def drop(self) -> None:
        """Forget buffered records and answers under way."""
        self.generation += 1
        self.buffered.clear()
        self.buffered_bytes = 0
        self.looking_up = False
        self.needs_validation = False


class Subscription:
    """Topics by name, by pattern, or partitions by hand: one of the three."""

    def __init__(self, *, exclude_internal: bool) -> None:
        self.topics: tuple[str, ...] = ()
        self.pattern: re.Pattern[str] | None = None
        self.pattern_applied = False
        self.by_hand = False
        self.listener: Any = None
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self._exclude_internal = exclude_internal

    @property
    def uses_group(self) -> bool:
        """Whether a group decides on the partitions."""
        return not self.by_hand and (bool(self.topics) or self.pattern is not None)

    def subscribe(self, topics: Iterable[str], listener: Any) -> None:
        """Want topics by name."""
        self._refuse_mixing(by_hand=False)
        self._refuse_other_kind(is_other=self.pattern is not None)
        self.topics = tuple(dict.fromkeys(topics))
        self.listener = listener

    def subscribe_pattern(self, pattern: str | re.Pattern[str], listener: Any) -> None:
        """Want the topics whose whole name matches."""
        self._refuse_mixing(by_hand=False)
        self._refuse_other_kind(is_other=self.pattern is None and bool(self.topics))
        self.pattern = re.compile(pattern)
        self.pattern_applied = False
        self.listener = listener

    def match(self, names: Iterable[tuple[str, bool]]) -> bool:
        """Apply the pattern to (name, is internal); True when the topics changed."""
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

    def assign_by_hand(self, partitions: Iterable[TopicPartition]) -> None:
        """Take exactly these partitions, without a group."""
        wanted = list(partitions)
        self._refuse_mixing(by_hand=True)
        self.by_hand = bool(wanted)
        self.replace(wanted)

    def replace(self, wanted: Iterable[TopicPartition]) -> None:
        """Set the assignment; partitions that stay keep their state."""
        before = self.partitions
        self.partitions = {
            partition: before.get(partition) or PartitionState(partition)
            for partition in dict.fromkeys(wanted)
        }
        for partition in before.keys() - self.partitions.keys():
            before[partition].drop()

    def unsubscribe(self) -> None:
        """Want nothing."""
        self.topics, self.pattern, self.by_hand, self.listener = (), None, False, None
        self.replace(())

    def _refuse_mixing(self, *, by_hand: bool) -> None:
        self._refuse_other_kind(is_other=self.uses_group if by_hand else self.by_hand)

    @staticmethod
    def _refuse_other_kind(*, is_other: bool) -> None:
        if is_other:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "topics, a pattern and assigned partitions exclude each other; "
                "call unsubscribe() in between",
            )

    def state(self, partition: TopicPartition) -> PartitionState:
        """Return the state of an assigned partition; KafkaError when it is not assigned."""
        found = self.partitions.get(partition)
        if found is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{partition} is not assigned to this consumer"
            )
        return found
