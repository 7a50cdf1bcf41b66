"""One cleaning of one log, in slices: a worker reads and writes, the loop replaces segments.

First the keys of the dirty part go into the map, as many as fit. Then each group of segments from
the log's first up to the end of the map is copied into one `.cleaned` segment without what the map
says is outdated; it takes their place when it is durable. The worker opens the files by their
names; its result is discarded when the log was truncated, deleted or moved before the exchange.

Kafka: Cleaner.doClean, Cleaner.cleanSegments.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import CorruptMessage
from ottla.storage.cleaner.batch_filter import BatchFilter, KeyIndexer, LastRecord
from ottla.storage.cleaner.key_scan import KeyScan
from ottla.storage.cleaner.offset_map import ENTRY_BYTES, OffsetMap
from ottla.storage.cleaner.transactions import CleanedTransactions
from ottla.storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from ottla.storage.layout import CLEANED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from ottla.storage.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterator, Sequence

    from ottla.storage.cleaner.candidates import LogToClean
    from ottla.storage.directory import Directory, File
    from ottla.storage.indexes.transaction_index import AbortedTransaction

SLICE_BYTES = 4 << 20
"""Read and written in a slice: some ten milliseconds of a worker."""
SMALLEST_BUFFER_BYTES = 64 << 10
MAX_SEGMENTS = 100
"""In a group: each is renamed on the loop. The next cleaning joins the groups."""
_DIRTY_BYTES_AN_ENTRY = 8
"""The map is not made larger than for keys of that many dirty bytes each."""
_LATEST_HORIZON_MS = 1 << 62


class CleanerLimits(NamedTuple):
    """The share of one cleaner in what all may use."""

    map_bytes: int
    load_factor: float
    buffer_bytes: int


class CleanerStats:
    """What one cleaning did; as Kafka's CleanerStats."""

    __slots__ = (
        "bytes_read",
        "bytes_written",
        "finished_ms",
        "map_bytes_read",
        "map_utilization",
        "records_kept",
        "records_read",
        "started_ms",
    )

    def __init__(self, now_ms: int) -> None:
        self.started_ms = self.finished_ms = now_ms
        self.map_bytes_read = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.records_read = 0
        self.records_kept = 0
        self.map_utilization = 0.0

    @property
    def total_bytes(self) -> int:
        """Bytes read and written so far."""
        return self.map_bytes_read + self.bytes_read + self.bytes_written

    @property
    def elapsed_ms(self) -> int:
        """How long the cleaning took."""
        return self.finished_ms - self.started_ms


class SegmentSize(NamedTuple):
    """A segment's place and sizes; end_offset is that of the next one, or of the cleaning."""

    base_offset: int
    end_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int


class SegmentReplacement(NamedTuple):
    """A durable new segment and those whose place it takes."""

    old: list[Segment]
    new: Segment


class Cleaner:
    """Cleans one log: `run` in a worker and `take_replacement` on the loop, in turns.

    `is_done` when `run` has nothing more to do; the log is clean up to `end_offset` then.
    """

    def __init__(
        self,
        candidate: LogToClean,
        limits: CleanerLimits,
        *,
        now_ms: int,
        seed: int,
    ) -> None:
        """Take the state of the log, on the loop."""
        log = candidate.log
        self.candidate = candidate
        self.generation = log.generation
        self.is_done = False
        self.stats = CleanerStats(now_ms)
        self._limits = limits
        self._now_ms = now_ms
        self._seed = seed
        self._directory: Directory = log.directory
        self._name = log.name
        self._config = log.config
        bound = candidate.first_uncleanable
        self._segments = [segment for segment in log.segments if segment.base_offset < bound]
        self._copies = [segment.reopened(log.config) for segment in self._segments]
        self._later = [
            segment.reopened(log.config) for segment in log.segments if segment.base_offset >= bound
        ]
        self._active_index = log.segments.active.transaction_index.copied()
        self._producers = log.producer_state.entries_for_worker()
        self._scan: KeyScan
        self._aborted: list[AbortedTransaction] = []
        self._replacement: SegmentReplacement | None = None
        self._new: Segment | None = None
        self._unfinished: Segment | None = None
        """Has the names of the new segment, also when it could not be created."""
        self._replaced = 0
        """Number of segments whose replacement was taken."""
        self._work: Generator[int] = self._steps()

    def __repr__(self) -> str:
        return f"Cleaner({self._name}, {self.candidate.first_dirty})"

    @property
    def volume(self) -> Hashable:
        """The volume whose disk it waits for."""
        return self._directory.volume

    @property
    def is_current(self) -> bool:
        """Whether the log still has the segments that are not replaced yet."""
        return {*self.candidate.log.segments}.issuperset(self._segments[self._replaced :])

    @property
    def end_offset(self) -> int:
        """The offset up to which the log is clean when all segments are replaced."""
        return self._scan.offset_map.latest_offset + 1

    def run(self, max_bytes: int = SLICE_BYTES) -> int:
        """Work on about so many bytes, or up to a replacement; return how many it read and wrote.

        OSError when the disk fails, CorruptMessage or KafkaError for records that cannot be read.
        """
        done = 0
        while done < max_bytes and self._replacement is None:
            size = next(self._work, None)
            if size is None:
                self.is_done = True
                break
            done += size
        return done

    def take_replacement(self) -> SegmentReplacement | None:
        """Return the segments to exchange before the next `run`; the caller owns them then."""
        found, self._replacement = self._replacement, None
        if found is not None:
            self._new = self._unfinished = None
            self._replaced += len(found.old)
        return found

    def discard(self) -> None:
        """Remove the files of an unfinished segment; OSError when the disk fails."""
        self._work.close()
        if self._new is not None:
            self._new.close_files()
        if self._unfinished is not None:
            self._unfinished.remove_names()

    def _steps(self) -> Generator[int]:
        """Yield the bytes of each step."""
        self._aborted = self._read_aborted()
        yield from self._fill_map()
        end_offset = self.end_offset
        self._segments = [segment for segment in self._segments if segment.base_offset < end_offset]
        sizes = [self._size_of(number) for number in range(len(self._segments))]
        groups = group_segments(
            sizes,
            segment_bytes=self._config.segment_bytes,
            index_bytes=self._config.segment_index_bytes,
        )
        batch_filter = self._filter()
        first = 0
        for count in groups:
            yield from self._rewrite(first, first + count, batch_filter)
            first += count
        scan, stats = self._scan, self.stats
        stats.records_read, stats.records_kept = scan.read_count, scan.kept_count
        stats.map_utilization = scan.offset_map.utilization

    def _read_aborted(self) -> list[AbortedTransaction]:
        """Return the aborted transactions of the whole log: a marker may lie in a later segment."""
        stored = [segment.transaction_index for segment in (*self._copies, *self._later[:-1])]
        return [entry for index in (*stored, self._active_index) for entry in index.entries()]

    # The map

    def _fill_map(self) -> Iterator[int]:
        candidate, limits = self.candidate, self._limits
        needed = candidate.cleanable_bytes // _DIRTY_BYTES_AN_ENTRY * ENTRY_BYTES
        size = min(limits.map_bytes, max(needed, SMALLEST_BUFFER_BYTES))
        horizon_ms = min(self._now_ms + self._config.delete_retention_ms, _LATEST_HORIZON_MS)
        offset_map = OffsetMap(size, limits.load_factor, self._seed)
        self._scan = KeyScan(offset_map, now_ms=self._now_ms, horizon_ms=horizon_ms)
        start = candidate.first_dirty
        after = [transaction for transaction in self._aborted if transaction.last_offset >= start]
        indexer = KeyIndexer(self._scan, CleanedTransactions(after), start_offset=start)
        for number, segment in enumerate(self._copies):
            end_offset = self._end_of(number)
            if end_offset <= start:
                continue
            for chunk in self._chunks(segment):
                consumed = indexer.index(chunk.view)
                self.stats.map_bytes_read += consumed
                yield consumed
                if indexer.is_full:
                    return
                chunk.consumed = consumed
            offset_map.latest_offset = max(offset_map.latest_offset, end_offset - 1)

    def _end_of(self, number: int) -> int:
        """Return the offset after a segment, gaps included."""
        if number + 1 < len(self._copies):
            return self._copies[number + 1].base_offset
        return self.candidate.first_uncleanable

    def _chunks(self, segment: Segment) -> Iterator[_Chunk]:
        """Yield the parts of a segment; the consumer says how much of each it used."""
        with segment.opened():
            position, size = 0, self._limits.buffer_bytes
            while position < segment.size:
                data = segment.file.read(position, min(size, segment.size - position))
                chunk = _Chunk(memoryview(data))
                yield chunk
                position += chunk.consumed
                if chunk.consumed:
                    size = self._limits.buffer_bytes
                elif position + len(data) >= segment.size or not data:
                    raise CorruptMessage(
                        f"{segment.path(LOG_SUFFIX)} has no complete batch at byte {position}"
                    )
                else:
                    size *= 2  # one large batch

    # The copy

    def _size_of(self, number: int) -> SegmentSize:
        segment = self._copies[number]
        index_bytes = self._directory.size(segment.path(INDEX_SUFFIX))
        time_index_bytes = self._directory.size(segment.path(TIME_INDEX_SUFFIX))
        end = self._end_of(number)
        return SegmentSize(segment.base_offset, end, segment.size, index_bytes, time_index_bytes)

    def _filter(self) -> BatchFilter:
        self._scan.read_count = 0
        return BatchFilter(
            self._scan,
            CleanedTransactions(self._aborted),
            {
                producer.producer_id: LastRecord(producer.last_data_offset, producer.producer_epoch)
                for producer in self._producers
            },
            now_ms=self._now_ms,
            upper_offset=self.candidate.first_uncleanable,
        )

    def _rewrite(self, first: int, end: int, batch_filter: BatchFilter) -> Iterator[int]:
        """Write what is kept of the segments from first to end; the last step replaces them."""
        transactions = batch_filter.transactions
        transactions.kept.clear()
        self._unfinished = self._copies[first].reopened(self._config)
        self._unfinished.suffix = CLEANED_SUFFIX
        new = self._new = self._create(self._unfinished.base_offset)
        for source in self._copies[first:end]:
            batch_filter.keeps_legacy_tombstones = self._is_young(source)
            for chunk in self._chunks(source):
                filtered = batch_filter.filter(chunk.view)
                chunk.consumed = filtered.consumed
                written = sum(size for _, _, size in filtered.places)
                if written:
                    new.append((b"".join(filtered.buffers),), written, filtered.places)
                self.stats.bytes_read += filtered.consumed
                self.stats.bytes_written += written
                yield filtered.consumed + written
        for entry in transactions.kept:
            new.transaction_index.append(entry)
        self._make_durable(new)
        self._replacement = SegmentReplacement(self._segments[first:end], new)
        yield 0

    def _is_young(self, source: Segment) -> bool:
        return source.modified_ms() > self._now_ms - self._config.delete_retention_ms

    def _create(self, base_offset: int) -> Segment:
        return Segment.create(
            self._directory,
            self._name,
            base_offset,
            config=self._config,
            now_ms=self._now_ms,
            suffix=CLEANED_SUFFIX,
        )

    def _make_durable(self, new: Segment) -> None:
        """Sync its files; and the name of the checkpoint above which a recovery takes no gaps."""
        new.become_inactive()
        with _pinned(new) as files:
            for file in files:
                file.sync()
        self._directory.sync()


class _Chunk:
    """A part of a segment; `consumed` is how much of it was used."""

    __slots__ = ("consumed", "view")

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.consumed = 0


@contextmanager
def _pinned(segment: Segment) -> Iterator[list[File]]:
    files: list[File] = []
    try:
        segment.pin_for_sync(files, is_active=False)
        yield files
    finally:
        for file in files:
            file.unpin()


def group_segments(
    segments: Sequence[SegmentSize], *, segment_bytes: int, index_bytes: int
) -> list[int]:
    """Return the sizes of groups of neighbours that fit into one segment uncompacted.

    Kafka: Cleaner.groupSegmentsBySize.
    """
    groups: list[int] = []
    first = 0
    while first < len(segments):
        end = first + 1
        log_size, index_size, time_index_size = segments[first][2:]
        while end < len(segments) and end - first < MAX_SEGMENTS:
            segment = segments[end]
            log_size += segment.log_bytes
            index_size += segment.index_bytes
            time_index_size += segment.time_index_bytes
            too_large = log_size > segment_bytes or max(index_size, time_index_size) > index_bytes
            reach = segment.end_offset - 1 - segments[first].base_offset
            if too_large or (segment.log_bytes and reach > MAX_RELATIVE_OFFSET):
                break
            end += 1
        groups.append(end - first)
        first = end
    return groups
