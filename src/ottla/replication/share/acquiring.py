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
    archiving.archive_stale(partition, fetch_offset, batches[0].base_offset)
    found = _Acquisition(partition, request, batches, limits).acquire()
    if fetched.aborted:
        found = archiving.without_aborted(partition, fetched, found)
    if partition.settle():
        partition.environment.on_available(partition.key)
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


class _Acquisition:
    """One acquisition, of batches some of which may be in flight."""

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
        self._first_offset = max(batches[0].base_offset, partition.start_offset)
        self._count = 0
        self._is_throttled = False
        self._found: list[Acquired] = []

    def acquire(self) -> list[Acquired]:
        """Return the ranges acquired of batches in flight, and of what follows them."""
        partition, last_offset = self._partition, self._limits.last_offset
        for batch in partition.batches.overlapping(self._first_offset, last_offset):
            if self._left <= 0 or self._is_throttled:
                return self._found
            whole = batch.whole
            if whole is not None and whole.is_available and not whole.delivery_count:
                self._acquire_undelivered(batch)
            else:
                self._acquire_known(batch)
        if self._left > 0 and not self._is_throttled:
            is_idle = not len(partition.batches)
            end = partition.end_offset if is_idle else partition.end_offset + 1
            first_offset = max(self._first_offset, end)
            if is_idle and first_offset <= last_offset:
                partition.start_offset = first_offset  # no record is before it
            self._acquire_new(first_offset, last_offset)
        return self._found

    @property
    def _left(self) -> int:
        return self._limits.max_records - self._count

    def _acquire_undelivered(self, batch: InFlightBatch) -> None:
        """Acquire offsets that had no state after loading, as if they were new."""
        first_offset = max(batch.first_offset, self._first_offset)
        last_offset = min(batch.last_offset, self._limits.last_offset)
        self._partition.batches.remove(batch)
        acquired_last = self._acquire_new(first_offset, last_offset)
        if batch.first_offset < first_offset:
            self._partition.add_undelivered(batch.first_offset, first_offset - 1)
        if acquired_last < batch.last_offset:
            self._partition.add_undelivered(acquired_last + 1, batch.last_offset)

    def _acquire_new(self, first_offset: int, last_offset: int) -> int:
        """Put offsets in flight up to the batch that reaches the limit; return the last one."""
        if self._left < last_offset - first_offset + 1:
            end = _end_of_batch(self._batches, first_offset + self._left - 1)
            last_offset = min(last_offset, end)
        if last_offset < first_offset:
            return first_offset - 1
        offsets = (first_offset, last_offset)
        found = _create(self._partition, self._request, self._batches, offsets, self._left)
        self._partition.end_offset = max(self._partition.end_offset, last_offset)
        self._found += found
        self._count += found[-1].last_offset - found[0].first_offset + 1
        return last_offset

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
