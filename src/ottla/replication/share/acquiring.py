"""Acquisition of records by a share fetch, and the archiving of those not delivered.

The response names ranges of offsets with their number of deliveries. Records near the delivery
limit are delivered in smaller numbers, the last time one alone, so that one bad record does not
exhaust the deliveries of others.

Kafka: SharePartition.{acquire, acquireNewBatchRecords, acquireSubsetBatchRecords};
SharePartition.{updateCacheAndOffsets, maybeArchiveStaleBatches, archiveRecords,
filterAbortedTransactionalAcquiredRecords}; org.apache.kafka.common.record.internal.RecordBatch, as
SharePartition uses it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.records.batch import (
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    MAGIC_POSITION,
    TRANSACTIONAL_FLAG,
    RecordBatch,
    claimed_bytes,
)
from ottla.records.batches import iterate_batches
from ottla.records.control import ControlRecordType, decode_control_type
from ottla.replication.share.partition import Phase, SharePartition
from ottla.replication.share.states import ACQUIRED, AVAILABLE, InFlightBatch, InFlightState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.replication.share.states import RecordState
    from ottla.storage.indexes.transaction_index import AbortedTransaction
    from ottla.types import Buffer

WINDOW_BYTES: Final = 64 * 1024
"""Bytes that are read at once; of larger batches only the header is read."""
_MAGIC: Final = 2


class FetchedBatch(NamedTuple):
    """A batch, where it lies in what was fetched, and its producer where that is transactional."""

    base_offset: int
    last_offset: int
    position: int
    size: int
    producer_id: int
    is_transactional: bool
    is_abort: bool


class Acquired(NamedTuple):
    """Consecutive offsets after the same number of deliveries."""

    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass(slots=True)
class Fetched:
    """The whole batches of a fetch, and the aborted transactions that overlap with them."""

    batches: list[FetchedBatch]
    aborted: list[AbortedTransaction] = field(default_factory=list)


def walk(
    read: Callable[[int, int], Buffer],
    size: int,
    aborted: list[AbortedTransaction] | None,
    last_offset: int,
) -> Fetched:
    """Return the whole batches of fetched bytes, up to the one that has last_offset.

    read(position, size) reads part of the bytes: a member takes few of many small batches, and
    examining all of them would block the event loop. CorruptMessage for malformed batches.
    """
    found: list[FetchedBatch] = []
    position, begin, window = 0, 0, memoryview(b"")
    while position < size and not (found and found[-1].last_offset >= last_offset):
        if position + HEADER_BYTES > begin + len(window):
            begin, window = position, memoryview(read(position, min(WINDOW_BYTES, size - position)))
        place = position - begin
        is_old = len(window) > place + MAGIC_POSITION and window[place + MAGIC_POSITION] < _MAGIC
        if is_old or len(window) - place < HEADER_BYTES:
            found += _old_batches(read, position, size)
            break
        header = HEADER.unpack_from(window, place)
        count = claimed_bytes(window, place)
        if position + count > size:
            break
        is_abort = bool(aborted and header[5] & CONTROL_FLAG and _is_abort(read(position, count)))
        is_transactional = bool(header[5] & TRANSACTIONAL_FLAG)
        ends = (header[0], header[0] + header[6])
        found.append(FetchedBatch(*ends, position, count, header[9], is_transactional, is_abort))
        position += count
    return Fetched(found, aborted or [])


def _is_abort(control: Buffer) -> bool:
    records = RecordBatch(memoryview(control), 0).records()
    return any(decode_control_type(record.key) is ControlRecordType.ABORT for record in records)


def _old_batches(
    read: Callable[[int, int], Buffer], position: int, size: int
) -> Iterator[FetchedBatch]:
    """Yield the batches of message formats 0 and 1, and those of format 2 after them."""
    for batch in iterate_batches(read(position, size - position), partial_tail=True):
        last = batch.next_offset - 1
        yield FetchedBatch(
            batch.base_offset, last, position, batch.size, batch.producer_id, False, False
        )
        position += batch.size


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
    # archive available offsets that a fetch from fetch_offset no longer finds: compacted ones
    base_offset = batches[0].base_offset
    if fetch_offset < base_offset:
        _archive(partition, fetch_offset, base_offset - 1, AVAILABLE)
    found = _Acquisition(partition, request, batches, limits).acquire()
    if fetched.aborted:
        # archive the acquired records of aborted transactions; return the ranges without
        # them
        ranges = found
        for batch in _aborted_batches(fetched):
            _archive(partition, batch.base_offset, batch.last_offset, ACQUIRED)
            ranges = [part for range_ in ranges for part in _cut(range_, batch)]
        found = ranges
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
        limit = _throttle_limit(self._partition.settings.delivery_count_limit)
        is_throttled = any(
            state.is_available and state.delivery_count >= limit
            for first, last, state in batch.states()
            if batch.whole is not None
            or (first >= self._first_offset and last <= self._limits.last_offset)
        )
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
    for acquired in found:
        state = InFlightState(ACQUIRED, 1, request.member_id)
        state.lock = partition.lock(acquired.first_offset, acquired.last_offset)
        created = InFlightBatch(acquired.first_offset, acquired.last_offset, state)
        partition.batches.add(created)
        partition.measures.batch_sizes.add(created.count)
        if is_cut:
            acquired_last = acquired.first_offset + max_records - 1
            partition.split(created, acquired_last)
            partition.may_find_available = True
            return [acquired._replace(last_offset=acquired_last)]
    return found


def move_start(partition: SharePartition, log_start_offset: int) -> None:
    """Move the start to the log start, past records that were deleted, whoever has them."""
    if log_start_offset > partition.start_offset:
        partition.start_at(log_start_offset)


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
    left = sorted(fetched.aborted, key=lambda aborted: aborted.first_offset)
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
