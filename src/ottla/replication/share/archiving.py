"""Archive records that are no longer delivered: deleted, compacted or aborted ones.

Kafka: SharePartition.{updateCacheAndOffsets, maybeArchiveStaleBatches, archiveRecords,
filterAbortedTransactionalAcquiredRecords}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replication.share.states import ACQUIRED, AVAILABLE, RecordState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.replication.share.partition import SharePartition
    from ottla.replication.share.states import InFlightBatch
    from ottla.replication.share.walk import Acquired, Fetched, FetchedBatch


def move_start(partition: SharePartition, log_start_offset: int) -> None:
    """Move the start to the log start, past records that were deleted.

    Acquired ones stay with their members; they are archived when they come back.
    """
    if log_start_offset <= partition.start_offset:
        return
    if not len(partition.batches):
        partition.start_offset = partition.end_offset = log_start_offset
        partition.delivery_complete_count = 0
        return
    known = list(partition.batches)
    passed = sum(
        partition.count_in(first, min(last, log_start_offset - 1))
        for batch in known
        for first, last, state in batch.states()
        if first < log_start_offset and state.is_terminal
    )
    if _archive(partition, (partition.start_offset, log_start_offset), known, AVAILABLE):
        partition.may_find_available = True
    partition.start_offset = log_start_offset
    partition.delivery_complete_count -= passed
    partition.end_offset = max(partition.end_offset, partition.start_offset)


def archive_stale(partition: SharePartition, fetch_offset: int, base_offset: int) -> None:
    """Archive available offsets that a fetch from fetch_offset no longer finds: compacted ones."""
    if not len(partition.batches) or fetch_offset >= base_offset:
        return
    floor = partition.batches.floor(fetch_offset)
    begin = fetch_offset
    if floor is not None and floor.last_offset >= fetch_offset:
        begin = floor.first_offset
    known = partition.batches.between(begin, base_offset - 1)
    if _archive(partition, (fetch_offset, base_offset), known, AVAILABLE, counts=True):
        partition.may_find_available = True


def without_aborted(
    partition: SharePartition, fetched: Fetched, acquired: list[Acquired]
) -> list[Acquired]:
    """Archive the acquired records of aborted transactions; return the ranges without them."""
    aborted = _aborted_batches(fetched)
    for batch in aborted:
        floor = partition.batches.floor(batch.base_offset)
        if floor is None:
            continue
        known = partition.batches.between(floor.first_offset, batch.last_offset)
        offsets = (batch.base_offset, batch.last_offset + 1)
        _archive(partition, offsets, known, ACQUIRED, counts=True)
    ranges = acquired
    for batch in aborted:
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
    partition: SharePartition,
    offsets: tuple[int, int],
    batches: Iterable[InFlightBatch],
    from_state: RecordState,
    *,
    counts: bool = False,
) -> bool:
    """Archive offsets in a state, the second bound excluded; return whether there were any."""
    first_offset, end_offset = offsets
    has_archived = False
    for batch in batches:
        if batch.first_offset >= end_offset:
            break
        if batch.whole is not None:
            if batch.whole.state is not from_state:
                continue
            if not batch.is_within(first_offset, end_offset - 1):
                partition.split(batch)
        for first, last, state in batch.states():
            if first < first_offset or last >= end_offset or state.state is not from_state:
                continue
            state.archive()
            has_archived = True
            if counts:
                partition.delivery_complete_count += last - first + 1
    return has_archived
