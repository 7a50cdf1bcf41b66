"""The state of a share partition, and merges of adjacent batches in the same state.

Overlapping batches are cut. Of two states of a record the one with more deliveries counts; with
equally many, the higher state.

Kafka: org.apache.kafka.coordinator.share.ShareGroupOffset, SharePartitionKey,
PersisterStateBatch; org.apache.kafka.coordinator.share.PersisterStateBatchCombiner.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable
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


def combine_batches(
    known: Iterable[StateBatch], added: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Return all batches in order and without overlaps, none below start_offset."""
    left = sorted({batch for one in (*known, *added) for batch in _from(one, start_offset)})
    found: list[StateBatch] = []
    while left:
        batch = left.pop(0)
        previous = found[-1] if found else None
        if previous is None or not _touch(previous, batch):
            found.append(batch)
            continue
        found.pop()
        for part in _merge(previous, batch):
            # Searched for: thousands of records of a partition may be in flight, each with a state.
            place = bisect_left(left, part)
            if place == len(left) or left[place] != part:
                left.insert(place, part)
    return tuple(found)


def _from(batch: StateBatch, start_offset: int) -> tuple[StateBatch, ...]:
    """Return the part of a batch that is not below start_offset, if any."""
    if start_offset == UNINITIALIZED_OFFSET or batch.first_offset >= start_offset:
        return (batch,)
    return () if batch.last_offset < start_offset else (batch._replace(first_offset=start_offset),)


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state


def _touch(previous: StateBatch, batch: StateBatch) -> bool:
    """Whether two batches overlap, or follow each other in the same state."""
    if batch.first_offset <= previous.last_offset:
        return True
    return batch.first_offset == previous.last_offset + 1 and _rank(previous) == _rank(batch)


def _merge(previous: StateBatch, batch: StateBatch) -> list[StateBatch]:
    """Return the parts of two batches that overlap or touch; previous begins first."""
    if _rank(previous) == _rank(batch):
        return [previous._replace(last_offset=max(previous.last_offset, batch.last_offset))]
    parts = []
    if _rank(batch) > _rank(previous):
        if previous.first_offset < batch.first_offset:
            parts.append(previous._replace(last_offset=batch.first_offset - 1))
        parts.append(batch)
        if previous.last_offset > batch.last_offset:
            parts.append(previous._replace(first_offset=batch.last_offset + 1))
        return parts
    parts.append(previous)
    if batch.last_offset > previous.last_offset:
        parts.append(batch._replace(first_offset=previous.last_offset + 1))
    return parts
