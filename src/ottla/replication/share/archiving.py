"""Archive records that are no longer delivered: deleted, compacted or aborted ones.

Kafka: SharePartition.{updateCacheAndOffsets, maybeArchiveStaleBatches, archiveRecords,
filterAbortedTransactionalAcquiredRecords}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replication.share.states import ACQUIRED, AVAILABLE

if TYPE_CHECKING:
    from ottla.replication.share.partition import SharePartition
    from ottla.replication.share.states import RecordState
    from ottla.replication.share.walk import Acquired, Fetched, FetchedBatch


def move_start(partition: SharePartition, log_start_offset: int) -> None:
    """Move the start to the log start, past records that were deleted, whoever has them."""
    if log_start_offset > partition.start_offset:
        partition.start_at(log_start_offset)


def archive_stale(partition: SharePartition, fetch_offset: int, base_offset: int) -> None:
    """Archive available offsets that a fetch from fetch_offset no longer finds: compacted ones."""
    if fetch_offset < base_offset:
        _archive(partition, fetch_offset, base_offset - 1, AVAILABLE)


def without_aborted(
    partition: SharePartition, fetched: Fetched, acquired: list[Acquired]
) -> list[Acquired]:
    """Archive the acquired records of aborted transactions; return the ranges without them."""
    ranges = acquired
    for batch in _aborted_batches(fetched):
        _archive(partition, batch.base_offset, batch.last_offset, ACQUIRED)
        ranges = [part for one in ranges for part in _cut(one, batch)]
    return ranges


def _cut(one: Acquired, batch: FetchedBatch) -> list[Acquired]:
    """Return what is left of a range without the offsets of a batch."""
    if batch.last_offset < one.first_offset or batch.base_offset > one.last_offset:
        return [one]
    parts = []
    if one.first_offset < batch.base_offset:
        parts.append(one._replace(last_offset=batch.base_offset - 1))
    if one.last_offset > batch.last_offset:
        parts.append(one._replace(first_offset=batch.last_offset + 1))
    return parts


def _aborted_batches(fetched: Fetched) -> list[FetchedBatch]:
    left = sorted(fetched.aborted, key=lambda one: one.first_offset)
    producers: set[int] = set()
    found = []
    for batch in fetched.batches:
        while left and left[0].first_offset <= batch.last_offset:
            producers.add(left.pop(0).producer_id)
        if batch.is_abort:
            producers.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in producers:
            found.append(batch)
    return found


def _archive(
    partition: SharePartition, first_offset: int, last_offset: int, from_state: RecordState
) -> None:
    """Archive offsets in a state, except those whose change is not persisted yet."""
    for batch in partition.batches.overlapping(first_offset, last_offset):
        if batch.whole is not None:
            if batch.whole.state is not from_state or batch.whole.is_changing:
                continue
            if not batch.is_within(first_offset, last_offset):
                partition.split(batch)
        for first, last, state in batch.states():
            if first < first_offset or last > last_offset:
                continue
            if state.state is from_state and not state.is_changing:
                state.archive()
                partition.delivery_complete_count += last - first + 1
