"""A share fetch that waits for records it may acquire, and the acquisition itself.

It reads the log where records may be acquired. A read acquires nothing, so that fetches of other
members do not wait for this one. With enough bytes, or at the deadline, the fetch acquires the
records that are still available. For records in remote storage alone it waits until that was read,
at most remote.fetch.max.wait.ms.

Kafka: kafka.server.share.{DelayedShareFetch, ShareFetchUtils}.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.purgatory.pending import Pending
from ottla.purgatory.purgatory import DelayedOperation
from ottla.replication.share import acquiring
from ottla.replication.share.acquiring import AcquireRequest, acquire, walk
from ottla.replication.share.partition import Phase
from ottla.server.requests.page_cache import when_warm
from ottla.storage.log.append_info import FetchIsolation, OffsetMovedToTier
from ottla.types import FileSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.replication.share.acquiring import Acquired, FetchedBatch
    from ottla.replication.share.partition import SharePartition
    from ottla.server.remote.reader import RemoteRead, RemoteReader
    from ottla.server.system.environment import RunOnVolume
    from ottla.storage.log.reads import Found

_DROPPED: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER


@dataclass(frozen=True, slots=True)
class ShareFetchLimits:
    """The limits of a share fetch.

    is_wanted says whether the member's session goes on: records acquired after its end would wait
    for their locks to expire.
    """

    member_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    is_strict: bool
    is_wanted: Callable[[], bool] = lambda: True


@dataclass(slots=True)
class FetchedRecords:
    """The result for one partition: records with the ranges acquired of them, or an error."""

    records: FileSlice | bytes = b""
    acquired: list[Acquired] = field(default_factory=list)
    error: KafkaError | None = None


@dataclass(slots=True)
class _Read:
    """What the log has from the next offset of a share partition on."""

    name: object
    partition: SharePartition
    offset: int
    begin_ms: int
    max_bytes: int
    is_first: bool
    moved: OffsetMovedToTier | None = None
    """Where the records are in remote storage alone."""
    in_tier: RemoteRead[Found] | None = None
    found: Found | None = None
    error: KafkaError | None = None

    def end(self) -> None:
        """Record how long the fetch has occupied the share partition."""
        end_ms = self.partition.environment.clock.monotonic_ms()
        self.partition.measures.fetched(self.begin_ms, end_ms)

    @property
    def size(self) -> int:
        if self.found is None:
            return 0
        records = self.found[0]
        return records.size if isinstance(records, FileSlice) else len(records)


class DelayedShareFetch(DelayedOperation):
    """Waits for the share partitions of one request; `answer` has a result for each."""

    def __init__(
        self,
        on_error: Callable[[SharePartition, KafkaError], None],
        partitions: Mapping[object, SharePartition],
        limits: ShareFetchLimits,
        deadline_ms: int,
        run_on_volume: RunOnVolume,
        *,
        reader: RemoteReader | None = None,
    ) -> None:
        super().__init__(deadline_ms)
        self._reader = reader
        self._on_error = on_error
        self._partitions = dict(partitions)
        self._limits = limits
        self._run_on_volume = run_on_volume
        self._reads: list[_Read] | None = None
        self.failures: dict[object, KafkaError] = {}
        """Share partitions that could not be loaded or opened."""
        self.answer: Pending[dict[object, FetchedRecords]] = Pending()

    def failed(self, name: object, error: KafkaError) -> None:
        """Set the error of a share partition that could not be loaded."""
        self.failures[name] = error
        self._partitions.pop(name, None)

    def try_complete(self) -> bool:
        """Complete with enough bytes, an error of the log, a read of the tier, or no partition."""
        if not self._partitions or not self._limits.is_wanted():
            return self.force_complete()
        reads = self._read()
        size = sum(read.size for read in reads)
        is_ready = any(read.error is not None or self._reads_tier(read) for read in reads)
        if is_ready or (size and size >= self._limits.min_bytes):
            self._reads = reads
            return self.force_complete()
        for read in reads:
            read.end()
        return False

    def _reads_tier(self, read: _Read) -> bool:
        """Whether remote storage is to be read; not while its rate is exceeded."""
        return read.moved is not None and self._reader is not None and not self._reader.must_wait()

    def on_complete(self) -> None:
        """Acquire and answer, after workers have read what the page cache or the disk lacks."""
        reads = self._read() if self._reads is None else self._reads
        begun: list[RemoteRead[Found]] = []
        for read in reads:
            if read.moved is not None and self._reader is not None and self._reads_tier(read):
                isolation = _isolation(read.partition)
                read.in_tier = self._reader.read(read.partition.replica.log, read.moved, isolation)
                begun.append(read.in_tier)
        if begun and self._reader is not None:
            self._reader.wait_for_fetches(begun, partial(self._take_tier, reads))
        else:
            self._warm(reads)

    def _take_tier(self, reads: list[_Read]) -> None:
        """Continue with what remote storage has sent; local files may be others by now."""
        for read in reads:
            if read.in_tier is None:
                self._find(read)
            elif isinstance(read.in_tier.result.error, KafkaError):
                read.error = read.in_tier.result.error
            elif read.in_tier.result.done:
                read.found = read.in_tier.result.value
        self._warm(reads)

    def _warm(self, reads: list[_Read]) -> None:
        cold = [
            read.found[0]
            for read in reads
            if read.found is not None
            and isinstance(read.found[0], FileSlice)
            and _is_cold(read.found[0])
        ]
        if cold:
            when_warm(cold, None, self._run_on_volume).on_done(lambda _: self._acquire(reads))
        else:
            self._acquire(reads)

    def _read(self) -> list[_Read]:
        """Read the log of the share partitions from which records may be acquired."""
        ready = [
            (name, one)
            for name, one in self._partitions.items()
            if one.phase is Phase.FENCED or (one.phase is Phase.ACTIVE and one.can_acquire)
        ]
        left = self._limits.max_bytes
        reads: list[_Read] = []
        for name, one in ready:
            begin_ms = one.environment.clock.monotonic_ms()
            is_first = not any(before.size for before in reads)
            max_bytes = max(1, left // len(ready))
            read = _Read(name, one, one.next_fetch_offset(), begin_ms, max_bytes, is_first)
            reads.append(read)
            self._find(read)
        return reads

    def _find(self, read: _Read) -> None:
        partition, read.found = read.partition, None
        if partition.phase is Phase.FENCED:
            read.error = KafkaError(_DROPPED)
            return
        try:
            partition.replica.check_leader(partition.leader_epoch)
            read.found = partition.replica.read(
                read.offset,
                read.max_bytes,
                _isolation(partition),
                partition.leader_epoch,
                read.is_first,
            )
        except OffsetMovedToTier as moved:
            read.moved = moved
            read.error = moved if self._reader is None else None
        except KafkaError as error:
            read.error = error

    def _acquire(self, reads: list[_Read]) -> None:
        results: dict[object, FetchedRecords] = {
            name: FetchedRecords(error=error) for name, error in self.failures.items()
        }
        left = self._limits.max_records
        for read in reads:
            result = self._acquire_one(read, left)
            read.end()
            left -= _count(result.acquired)
            results[read.name] = result
        self.answer.complete(results)

    def _acquire_one(self, read: _Read, max_records: int) -> FetchedRecords:
        partition = read.partition
        if read.error is not None:
            if read.error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                acquiring.move_start(partition, partition.replica.log.log_start_offset)
                partition.environment.on_available(partition.key)
                return FetchedRecords()
            self._on_error(partition, read.error)
            return FetchedRecords(error=read.error)
        if not read.size or read.found is None or not self._limits.is_wanted():
            return FetchedRecords()
        records, aborted = read.found
        try:
            last_offset = max(partition.end_offset, read.offset) + max_records
            fetched = walk(_reader(records), read.size, aborted, last_offset)
        except (CorruptMessage, OSError) as error:
            is_corrupt = isinstance(error, CorruptMessage)
            code = ErrorCode.CORRUPT_MESSAGE if is_corrupt else ErrorCode.KAFKA_STORAGE_ERROR
            return FetchedRecords(error=KafkaError(code))
        limits = self._limits
        request = AcquireRequest(limits.member_id, max_records, limits.batch_size, limits.is_strict)
        acquired = acquire(partition, request, read.offset, fetched)
        if not acquired:
            return FetchedRecords()
        return FetchedRecords(_cut(records, fetched.batches, acquired), acquired)


def _isolation(partition: SharePartition) -> FetchIsolation:
    is_committed_only = partition.settings.is_committed_only
    return FetchIsolation.TXN_COMMITTED if is_committed_only else FetchIsolation.HIGH_WATERMARK


def _is_cold(records: FileSlice) -> bool:
    """Whether a read would wait for the disk, or fail: a worker's error does not end a turn."""
    try:
        return not records.file.is_cached(*records[1:])  # type: ignore[attr-defined] # a log's own file
    except OSError:
        return True


def _reader(records: FileSlice | bytes) -> Callable[[int, int], bytes]:
    """Return a function that reads a part of the records."""
    if isinstance(records, FileSlice):
        return lambda position, size: records.file.read(records.position + position, size)
    return lambda position, size: records[position : position + size]


def _count(acquired: list[Acquired]) -> int:
    return sum(one.last_offset - one.first_offset + 1 for one in acquired)


def _cut(
    records: FileSlice | bytes, batches: list[FetchedBatch], acquired: list[Acquired]
) -> FileSlice | bytes:
    """Return the batches from the first acquired offset to the last one."""
    first_offset, last_offset = acquired[0].first_offset, acquired[-1].last_offset
    within = [
        batch
        for batch in batches
        if batch.last_offset >= first_offset and batch.base_offset <= last_offset
    ]
    begin = within[0].position
    size = within[-1].position + within[-1].size - begin
    if isinstance(records, FileSlice):
        return FileSlice(records.file, records.position + begin, size)
    return records[begin : begin + size]
