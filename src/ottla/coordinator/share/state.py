"""The state of a share partition: where deliveries begin, and what is known of records after that.

Kafka: org.apache.kafka.coordinator.share.ShareGroupOffset, SharePartitionKey, PersisterStateBatch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.types import Uuid

if TYPE_CHECKING:
    from typing import Self

UNINITIALIZED_OFFSET: Final = -1
"""The start offset before a leader has looked at its log."""
UNKNOWN_COUNT: Final = -1


class ShareKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: Uuid
    partition: int

    def __str__(self) -> str:
        return f"{self.group_id}:{self.topic_id}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the form of FindCoordinator's keys; ValueError for another one."""
        group_id, topic_id, partition = text.rsplit(":", 2)
        if not group_id.strip():
            raise ValueError(f"{text!r} has no group")
        return cls(group_id, Uuid.parse(topic_id), int(partition))


class StateBatch(NamedTuple):
    """Consecutive records in one state after the same number of deliveries."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """A snapshot with the updates since; timestamps are those of the snapshot."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    create_timestamp_ms: int
    write_timestamp_ms: int
