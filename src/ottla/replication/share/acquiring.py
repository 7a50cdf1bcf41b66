"""Acquire records for a member: those that are available again, then those never delivered.

The response names ranges of offsets with their number of deliveries. Records near the delivery
limit are delivered in smaller numbers, the last time one alone, so that one bad record does not
exhaust the deliveries of others.

Kafka: SharePartition.{acquire, acquireNewBatchRecords, acquireSubsetBatchRecords}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.replication.share import archiving
from ottla.replication.share.partition import Phase, SharePartition
from ottla.replication.share.states import ACQUIRED, InFlightBatch, InFlightState
from ottla.replication.share.walk import Acquired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.replication.share.walk import Fetched, FetchedBatch

_FEWEST_THROTTLED: Final = 2


class AcquireRequest(NamedTuple):
    """What a member requests: a strict limit of records, or whole batches (KIP-1206)."""

    member_id: str
    max_records: int
    batch_size: int
    is_strict: bool


class _Limits(NamedTuple):
    last_offset: int
    max_records: int


def acquire(
    partition: SharePartition, request: AcquireRequest, fetch_offset: int, fetched: Fetched
) -> list[Acquired]:
    """Return the ranges that a member gets of fetched batches; aborted ones are archived."""
    batches = fetched.batches
    if partition.phase is not Phase.ACTIVE or request.max_records <= 0 or not batches:
        return []
    if batches[-1].last_offset < partition.start_offset:
        return []
    limits = _limits(partition, request, fetch_offset, batches[-1].last_offset)
    if limits.max_records <= 0:
        return []
    first_offset = batches[0].base_offset
    archiving.archive_stale(partition, fetch_offset, first_offset)
    begin = _begin(partition, first_offset)
    known = partition.batches.between(min(first_offset, begin), limits.last_offset)
    if not known:
        found = _acquire_new(partition, request, batches, begin, limits)
    else:
        found = _Overlap(partition, request, batches, limits).acquire(known, begin)
        if found:
            partition.close_gap_to(found[-1].last_offset + 1)
    if fetched.aborted:
        return archiving.without_aborted(partition, fetched, found)
    return found


def _limits(
    partition: SharePartition, request: AcquireRequest, fetch_offset: int, last_offset: int
) -> _Limits:
    """Return how far and how much to acquire; in a full window only between what is in flight."""
    free = partition.settings.partition_max_record_locks - partition.in_flight_count
    count = min(request.max_records, free)
    if count > 0 or fetch_offset > partition.end_offset:
        return _Limits(last_offset, count)
    return _Limits(
        min(last_offset, partition.end_offset),
        min(request.max_records, partition.end_offset - fetch_offset + 1),
    )


def _begin(partition: SharePartition, first_offset: int) -> int:
    """Return where to look for batches in flight that overlap with what was fetched."""
    floor = partition.batches.floor(first_offset)
    if floor is None:
        return max(first_offset, partition.start_offset)
    return floor.first_offset if floor.last_offset >= first_offset else first_offset


class _Overlap:
    """One acquisition over batches some of which are in flight."""

    def __init__(
        self,
        partition: SharePartition,
        request: AcquireRequest,
        batches: Sequence[FetchedBatch],
        limits: _Limits,
    ) -> None:
        self._partition = partition
        self._request = request
        self._batches = batches
        self._limits = limits
        self._first_offset = batches[0].base_offset
        self._count = 0
        self._is_throttled = False
        self._found: list[Acquired] = []

    def acquire(self, known: Sequence[InFlightBatch], begin: int) -> list[Acquired]:
        """Return the ranges acquired of known batches, the gap before them, and what follows."""
        gap_offset = begin
        for batch in known:
            if self._left <= 0 or self._is_throttled:
                break
            if self._partition.gap_offset is not None:
                if gap_offset < batch.first_offset:
                    self._acquire_new(gap_offset, batch.first_offset - 1)
                gap_offset = batch.last_offset + 1
                if self._left <= 0:
                    break
            self._acquire_known(batch)
        last_known = known[-1].last_offset
        if self._left > 0 and not self._is_throttled and last_known < self._limits.last_offset:
            self._acquire_new(last_known + 1, self._limits.last_offset)
        return self._found

    @property
    def _left(self) -> int:
        return self._limits.max_records - self._count

    def _acquire_new(self, first_offset: int, last_offset: int) -> None:
        limits = _Limits(last_offset, self._left)
        found = _acquire_new(self._partition, self._request, self._batches, first_offset, limits)
        self._found += found
        if found:
            self._count += found[-1].last_offset - found[0].first_offset + 1

    def _acquire_known(self, batch: InFlightBatch) -> None:
        last_offset = self._limits.last_offset
        is_throttled = self._must_throttle(batch)
        if is_throttled and self._count:
            self._is_throttled = True
            return
        whole = batch.whole
        if whole is not None and not whole.is_available:
            return
        is_too_large = self._request.is_strict and batch.count > self._left
        is_partial = not batch.is_within(self._first_offset, last_offset)
        if whole is None or is_partial or is_too_large or is_throttled:
            self._partition.split(batch)
            count = self._acquire_offsets(batch)
            self._count += count
            self._is_throttled = is_throttled and count > 0
            return
        member_id = self._request.member_id
        lock = self._partition.lock(batch.first_offset, batch.last_offset)
        whole.acquire(member_id, lock)
        self._found.append(Acquired(batch.first_offset, batch.last_offset, whole.delivery_count))
        self._count += batch.count

    def _must_throttle(self, batch: InFlightBatch) -> bool:
        """Whether an available record of the batch is near its last delivery."""
        limit = _throttle_limit(self._partition.settings.delivery_count_limit)
        return any(
            state.is_available and state.delivery_count >= limit
            for first, last, state in batch.states()
            if batch.whole is not None
            or (first >= self._first_offset and last <= self._limits.last_offset)
        )

    def _acquire_offsets(self, batch: InFlightBatch) -> int:
        """Acquire available offsets one by one; return how many."""
        partition, member_id = self._partition, self._request.member_id
        delivery_limit = partition.settings.delivery_count_limit
        throttle_limit = _throttle_limit(delivery_limit)
        isolates_last = delivery_limit > _FEWEST_THROTTLED
        count, max_count = 0, self._left if self._request.is_strict else 0
        max_throttled: int | None = None
        for offset, state in batch.offsets.items():
            if offset > self._limits.last_offset:
                break
            if offset < self._first_offset or not state.is_available:
                continue
            if isolates_last and state.delivery_count == delivery_limit - 1 and count:
                break
            if max_throttled is None and state.delivery_count >= throttle_limit:
                further = state.delivery_count - throttle_limit + 1
                max_throttled = max(1, len(batch.offsets) >> further)
            state.acquire(member_id, partition.lock(offset, offset))
            _add(self._found, Acquired(offset, offset, state.delivery_count), joins=count > 0)
            count += 1
            is_last = isolates_last and state.delivery_count == delivery_limit
            if is_last or count in (max_count, max_throttled):
                break
        return count


def _throttle_limit(delivery_limit: int) -> int:
    """Return the number of deliveries from which on fewer records are delivered together."""
    return max(_FEWEST_THROTTLED, -(-delivery_limit // 2))


def _add(found: list[Acquired], one: Acquired, *, joins: bool) -> None:
    """Add a range; offset by offset it continues the last one after as many deliveries."""
    last = found[-1] if found and joins else None
    if (
        last is not None
        and last.last_offset + 1 == one.first_offset
        and last.delivery_count == one.delivery_count
    ):
        found[-1] = last._replace(last_offset=one.last_offset)
    else:
        found.append(one)


def _acquire_new(
    partition: SharePartition,
    request: AcquireRequest,
    batches: Sequence[FetchedBatch],
    first_offset: int,
    limits: _Limits,
) -> list[Acquired]:
    """Acquire offsets that are not in flight, up to the end of the batch that reaches the limit."""
    if not len(partition.batches) and partition.end_offset > first_offset:
        first_offset = partition.end_offset
    last_offset = limits.last_offset
    if limits.max_records < last_offset - first_offset + 1:
        last_offset = _end_of_batch(batches, first_offset + limits.max_records - 1)
        if partition.gap_offset is not None:
            last_offset = min(last_offset, limits.last_offset)
    if last_offset < first_offset:
        return []
    found = _create(partition, request, batches, (first_offset, last_offset), limits.max_records)
    if partition.batches.first.first_offset == first_offset:
        partition.start_offset = first_offset
    partition.end_offset = max(partition.end_offset, last_offset)
    if request.is_strict:
        last_offset = found[0].last_offset
    partition.close_gap_to(last_offset + 1)
    return found


def _end_of_batch(batches: Sequence[FetchedBatch], offset: int) -> int:
    """Return the last offset of the batch with an offset; the offset itself between batches."""
    previous = None
    for batch in batches:
        if offset < batch.base_offset:
            break
        previous = batch
    return (
        previous.last_offset if previous is not None and offset <= previous.last_offset else offset
    )


def _create(
    partition: SharePartition,
    request: AcquireRequest,
    batches: Sequence[FetchedBatch],
    offsets: tuple[int, int],
    max_records: int,
) -> list[Acquired]:
    """Put offsets in flight, cut at batches of the log into parts of about the batch size."""
    first_offset, last_offset = offsets
    found = []
    if not request.is_strict and last_offset - first_offset + 1 > request.batch_size:
        for batch in batches:
            base_offset = batch.base_offset
            if base_offset > last_offset:
                break
            if base_offset - first_offset >= request.batch_size:
                found.append(Acquired(first_offset, base_offset - 1, 1))
                first_offset = base_offset
    found.append(Acquired(first_offset, last_offset, 1))
    is_cut = request.is_strict and found[0].last_offset - found[0].first_offset + 1 > max_records
    for one in found:
        state = InFlightState(ACQUIRED, 1, request.member_id)
        state.lock = partition.lock(one.first_offset, one.last_offset)
        created = InFlightBatch(one.first_offset, one.last_offset, state)
        partition.batches.add(created)
        partition.measures.batch_sizes.add(created.count)
        if is_cut:
            acquired_last = one.first_offset + max_records - 1
            partition.split(created, acquired_last)
            partition.may_find_available = True
            return [one._replace(last_offset=acquired_last)]
    return found
