"""Reads of remote storage: for fetches, and for offsets by time.

The loop asks the metadata for segments and never touches the tier, its files or a lock; each read
of a segment or of its indexes is a job for a worker. `remote.log.reader.threads` run at once and
`remote.log.reader.max.pending.tasks` wait; a read beyond them is refused. A read that
no request waits for any longer begins no further job.

Kafka: RemoteLogManager.{asyncRead, asyncOffsetRead}, RemoteLogReader, RemoteLogOffsetReader,
DelayedRemoteFetch, DelayedRemoteListOffsets.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.sampled_stat import SampledStat, SampleWindow
from ottla.metrics.samples import Recent
from ottla.purgatory.pending import Pending
from ottla.purgatory.purgatory import DelayedOperation, Purgatory
from ottla.quota.replication import ReplicationQuota
from ottla.server.remote.figures import RemoteCounts
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.reads import NO_DATA
from ottla.storage.remote.partition_segments import end_in_lineage
from ottla.storage.remote.segment_reads import (
    SegmentPart,
    aborted_transactions,
    offset_for_timestamp,
    read_records,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.config.broker import BrokerConfig
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.work import Work
    from ottla.server.system.environment import RunInWorker
    from ottla.storage.indexes.transaction_index import AbortedTransaction
    from ottla.storage.log.append_info import OffsetMovedToTier
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log.reads import Found
    from ottla.storage.log.timestamps import TimestampAndOffset
    from ottla.storage.remote.index_cache import RemoteIndexCache
    from ottla.storage.remote.segment import RemoteSegment
    from ottla.storage.remote.segment_reads import RemoteRecords
    from ottla.storage.remote.storage_manager import RemoteStore
    from ottla.types import TopicPartition, Uuid

T = TypeVar("T")
J = TypeVar("J")
log = logging.getLogger("ottla.remote")
_COMMITTED: Final = FetchIsolation.TXN_COMMITTED
_OUT_OF_RANGE: Final = ErrorCode.OFFSET_OUT_OF_RANGE


class RemoteSegments(Protocol):
    """The tier as reads see it; the methods answer from memory, on the loop."""

    @property
    def storage(self) -> RemoteStore:
        """The storage manager, for workers."""

    @property
    def index_cache(self) -> RemoteIndexCache:
        """Local copies of indexes, for workers."""

    def segment_at(
        self, partition: tuple[Uuid, int], epoch: int, offset: int
    ) -> RemoteSegment | None:
        """Return the segment that has the record at offset, written in this epoch.

        KafkaError as long as the metadata is not read.
        """


class _Abandoned(Exception):
    """No request waits for the read."""


class RemoteRead(Generic[T]):
    """A read under way; `result` fails with KafkaError."""

    __slots__ = ("begin_ms", "counts", "is_abandoned", "result")

    def __init__(self, counts: RemoteCounts) -> None:
        self.counts = counts
        self.result: Pending[T] = Pending()
        self.begin_ms: int | None = None
        """When its first call began, of the monotonic clock."""
        self.is_abandoned = False
        """Whether no request waits for it any longer."""


class DelayedReads(DelayedOperation):
    """Waits for reads; `answer` is called when all are done, or at the deadline."""

    def __init__(
        self, deadline_ms: int, reads: Sequence[RemoteRead[T]], answer: Callable[[], None]
    ) -> None:
        super().__init__(deadline_ms)
        self._reads = reads
        self._answer = answer

    def try_complete(self) -> bool:
        """Complete when all reads are done."""
        return all(read.result.done for read in self._reads) and self.force_complete()

    def on_complete(self) -> None:
        """Answer with what there is; the other reads are abandoned."""
        for read in self._reads:
            read.is_abandoned = True
        self._answer()


class RemoteReader:
    """Reads of one node."""

    def __init__(
        self,
        segments: RemoteSegments,
        config: BrokerConfig,
        loop: Loop,
        run: RunInWorker,
        counts: defaultdict[str, RemoteCounts] | None = None,
    ) -> None:
        """Run jobs with run(), of remote.log.reader.threads workers; count reads by topic."""
        self.counts = defaultdict(RemoteCounts) if counts is None else counts
        self._segments = segments
        self._loop = loop
        self._run_in_worker = run
        self.fetches: Purgatory[DelayedReads] = Purgatory("RemoteFetch", loop.timer)
        self.searches: Purgatory[DelayedReads] = Purgatory("RemoteListOffsets", loop.timer)
        self._failing: set[TopicPartition] = set()
        """Partitions whose last read failed: a client repeats it, and one line is enough."""
        self.open_count = 0
        """Reads that have not ended, abandoned ones among them."""
        self.times_ms = Recent()
        """How long reads for fetches took, from the begin of their first call."""
        self.waits_ms = SampledStat(
            SampleWindow(config.metrics_num_samples, config.metrics_sample_window_ms)
        )
        """How long fetches would have had to wait for their quota."""
        window = SampleWindow(
            config.remote_log_manager_fetch_quota_window_num,
            config.remote_log_manager_fetch_quota_window_size_seconds * 1000,
        )
        self.quota = ReplicationQuota(window)
        self.reconfigure(config)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._threads: int = config.remote_log_reader_threads
        self._max_open = self._threads + config.remote_log_reader_max_pending_tasks
        self.max_wait_ms: int = config.remote_fetch_max_wait_ms
        """How long a fetch waits for the tier, whatever the client's limit."""
        self.search_timeout_ms: int = config.remote_list_offsets_request_timeout_ms
        self.quota.limit = float(config.remote_log_manager_fetch_max_bytes_per_second)

    def close(self) -> None:
        """Answer all that waits."""
        self.fetches.complete_all()
        self.searches.complete_all()

    def stalls(self) -> Iterator[str]:
        """Yield what waits without an end."""
        yield from self.fetches.stalls()
        yield from self.searches.stalls()

    def must_wait(self) -> bool:
        """Whether the rate of reads exceeds remote.log.manager.fetch.max.bytes.per.second."""
        now_ms = self._loop.clock.monotonic_ms()
        wait_ms = self.quota.wait_ms(now_ms)
        if wait_ms:
            self.waits_ms.record(wait_ms, now_ms)
        return wait_ms > 0

    def wait_for_fetches(
        self, reads: Sequence[RemoteRead[Found]], answer: Callable[[], None]
    ) -> None:
        """Call answer() when all reads of a fetch are done, or after remote.fetch.max.wait.ms."""
        self._wait(self.fetches, reads, answer, self.max_wait_ms)

    def wait_for_searches(
        self,
        reads: Sequence[RemoteRead[TimestampAndOffset | None]],
        answer: Callable[[], None],
        timeout_ms: int,
    ) -> None:
        """Call answer() when all searches are done, or after the client's limit, else our own."""
        self._wait(self.searches, reads, answer, timeout_ms or self.search_timeout_ms)

    def _wait(
        self,
        purgatory: Purgatory[DelayedReads],
        reads: Sequence[RemoteRead[T]],
        answer: Callable[[], None],
        timeout_ms: int,
    ) -> None:
        deadline_ms = self._loop.clock.monotonic_ms() + timeout_ms
        delayed = DelayedReads(deadline_ms, reads, answer)

        def check(_done: Pending[T]) -> None:
            if not delayed.is_completed:
                delayed.try_complete()

        if not purgatory.try_complete_else_watch(delayed, reads):
            for read in reads:
                read.result.on_done(check)

    def _measure(self, read: RemoteRead[Found]) -> None:
        if read.begin_ms is not None:
            self.times_ms.add(self._loop.clock.monotonic_ms() - read.begin_ms)

    # Reads

    def read(
        self, partition_log: PartitionLog, requested: OffsetMovedToTier, isolation: FetchIsolation
    ) -> RemoteRead[Found]:
        """Read what a log has no longer: the bytes of one segment, and what was aborted there.

        OFFSET_OUT_OF_RANGE where the log's lineage has no such segment, CORRUPT_MESSAGE for what
        the tier should not have, UNKNOWN_SERVER_ERROR for its other errors and for a full queue.
        """
        counts = self.counts[partition_log.topic_partition.topic]
        counts.read_count += 1
        read: RemoteRead[Found] = RemoteRead(counts)
        read.result.on_done(lambda _done: self._measure(read))
        is_committed = isolation is _COMMITTED
        what = f"{partition_log.topic_partition} at {requested.offset}"
        work = self._read(read, partition_log, requested, is_committed=is_committed)
        self._begin(read, work, what, partition_log.topic_partition)
        return read

    def search(
        self, partition_log: PartitionLog, timestamp: int
    ) -> RemoteRead[TimestampAndOffset | None]:
        """Find the first record at or after timestamp that the local log has no longer."""
        counts = self.counts[partition_log.topic_partition.topic]
        read: RemoteRead[TimestampAndOffset | None] = RemoteRead(counts)
        what = f"{partition_log.topic_partition} for time {timestamp}"
        work = self._search(read, partition_log, timestamp)
        self._begin(read, work, what, partition_log.topic_partition)
        return read

    def _begin(self, read: RemoteRead[T], work: Work[T], what: str, at: TopicPartition) -> None:
        if self.open_count >= self._max_open:
            work.close()
            log.warning(
                "remote storage is not read for %s: %d reads wait already; raise "
                "remote.log.reader.threads, or see why the tier is slow",
                what,
                self.open_count,
                extra={"event": "remote.read_refused"},
            )
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            read.result.fail(KafkaError(code, "Too many reads of remote storage wait"))
            return
        self.open_count += 1
        self._loop.worker.run(work).on_done(lambda done: self._ended(read, done, what, at))

    def _ended(self, read: RemoteRead[T], done: Pending[T], what: str, at: TopicPartition) -> None:
        self.open_count -= 1
        error = done.error
        if error is None:
            if at in self._failing:
                self._failing.remove(at)
                extra = {"event": "remote.read_again"}
                log.info("remote storage is read again for %s", at, extra=extra)
            read.result.complete(done.value)
            return
        is_of_client = isinstance(error, KafkaError) and error.code is _OUT_OF_RANGE
        if not is_of_client and not isinstance(error, _Abandoned):
            read.counts.failed_read_count += 1
            text = (
                "remote storage was not read for %s: %s; the client tries again; until that "
                "succeeds further failures of its partition are not logged"
            )
            level = logging.DEBUG if at in self._failing else logging.ERROR
            self._failing.add(at)
            log.log(level, text, what, error, extra={"event": "remote.read_failed"})
        if not isinstance(error, KafkaError):
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        read.result.fail(error)

    def _run(self, read: RemoteRead[T], job: Callable[[], J]) -> Pending[J]:
        """Run a job in a worker, unless no request waits for the read when its turn comes."""
        pending: Pending[J] = Pending()

        def run() -> J:
            if read.is_abandoned:
                raise _Abandoned
            if read.begin_ms is None:
                read.begin_ms = self._loop.clock.monotonic_ms()
            return job()

        self._run_in_worker(run, pending.job_done)
        return pending

    def _read(
        self,
        read: RemoteRead[Found],
        partition_log: PartitionLog,
        requested: OffsetMovedToTier,
        *,
        is_committed: bool,
    ) -> Work[Found]:
        offset = requested.offset
        part = self._part_at(partition_log, offset)
        if part is None:
            epoch = partition_log.leader_epochs.epoch_for_offset(offset)
            raise KafkaError(
                _OUT_OF_RANGE,
                f"Received request for offset {offset} for leader epoch {epoch} and partition "
                f"{partition_log.topic_partition} which does not exist in remote tier.",
            )
        found: RemoteRecords | None = None
        while part is not None:
            found = yield self._run(read, partial(self._read_part, part, requested))
            if found is not None:
                break
            part = self._part_at(partition_log, part.end_offset)  # it ends in a gap
        if found is None or part is None:
            return NO_DATA, [] if is_committed else None
        size = len(found.records)
        read.counts.read_bytes += size
        self.quota.record(size, self._loop.clock.monotonic_ms())
        if not is_committed or not size:
            return found.records, None
        aborted = yield from self._aborted(read, partition_log, part, found)
        return found.records, aborted

    def _read_part(self, part: SegmentPart, requested: OffsetMovedToTier) -> RemoteRecords | None:
        """Read batches, in a worker."""
        with self._segments.index_cache.opened(part.segment) as indexes:
            return read_records(
                self._segments.storage,
                indexes,
                part,
                requested.offset,
                requested.max_bytes,
                min_one_message=requested.min_one_message,
            )

    def _aborted(
        self,
        read: RemoteRead[Found],
        partition_log: PartitionLog,
        part: SegmentPart,
        found: RemoteRecords,
    ) -> Work[list[AbortedTransaction]]:
        """Return the aborted transactions among records, from the tier and then the local log.

        Both may have the same segments, so each is taken once.
        """
        first_offset, end_offset = found.first_offset, found.end_offset
        aborted: dict[AbortedTransaction, None] = {}
        current: SegmentPart | None = part
        while current is not None:
            if not current.segment.is_transaction_index_empty:
                job = partial(self._read_aborts, current, first_offset, end_offset)
                some, has_more = yield self._run(read, job)
                aborted |= dict.fromkeys(some)
                if not has_more:
                    return list(aborted)
            current = self._part_at(partition_log, current.end_offset)
            yield
        try:
            for local in partition_log.readable.ordered:
                index = local.transaction_index
                aborted |= dict.fromkeys(index.overlapping(first_offset, end_offset))
                if not index.is_followed_below(end_offset):
                    break
        except OSError as error:
            raise partition_log.storage_error("reading the aborts of", error) from error
        return list(aborted)

    def _read_aborts(
        self, part: SegmentPart, first_offset: int, end_offset: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """Read a transaction index, in a worker."""
        with self._segments.index_cache.opened(part.segment) as indexes:
            return aborted_transactions(indexes, part, first_offset, end_offset)

    def _search(
        self, read: RemoteRead[TimestampAndOffset | None], partition_log: PartitionLog, time: int
    ) -> Work[TimestampAndOffset | None]:
        start_offset = partition_log.log_start_offset
        part = self._part_at(partition_log, start_offset)
        while part is not None:
            if part.segment.start_offset >= partition_log.segments[0].base_offset:
                return None  # the local log has it, and is faster
            if part.segment.max_timestamp_ms >= time:
                job = partial(self._search_part, part, time, start_offset)
                found: TimestampAndOffset | None = yield self._run(read, job)
                if found is not None:
                    return found
            part = self._part_at(partition_log, part.end_offset)
            yield
        return None

    def _search_part(
        self, part: SegmentPart, timestamp: int, start_offset: int
    ) -> TimestampAndOffset | None:
        """Search a segment, in a worker."""
        with self._segments.index_cache.opened(part.segment) as indexes:
            storage = self._segments.storage
            return offset_for_timestamp(storage, indexes, part, timestamp, start_offset)

    def _part_at(self, partition_log: PartitionLog, offset: int) -> SegmentPart | None:
        """Return the segment with the record at offset, as far as it is of the log's lineage."""
        topic_id, epochs = partition_log.topic_id, partition_log.leader_epochs
        assert topic_id is not None, "a tiered topic has an id"
        epoch = epochs.epoch_for_offset(offset)
        key = topic_id, partition_log.topic_partition.partition
        segment = self._segments.segment_at(key, epoch, offset)
        if segment is None:
            return None
        return SegmentPart(segment, end_in_lineage(segment, epoch, epochs))
