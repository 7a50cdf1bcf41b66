"""The files of one partition's log, read without its node: which offsets, and their batches.

A node may append, compact and delete meanwhile. Records are read up to the high watermark of its
checkpoint, which is at most five seconds old; a segment is found by offset when its turn comes, so
that one that was compacted or deleted since the plan is no error.

Kafka: none; UnifiedLog and LocalLog read for a fetch.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from ottla.clients.range_fetcher import Chunk
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.batch import LENGTH_POSITION, LOG_OVERHEAD_BYTES
from ottla.records.batches import iterate_batches
from ottla.storage.batches import parse_header, walk_file, whole_batches
from ottla.storage.directory import join
from ottla.storage.indexes.offset_index import OffsetIndex
from ottla.storage.indexes.time_index import TimeIndex
from ottla.storage.indexes.transaction_index import TransactionIndex
from ottla.storage.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    base_offset_of,
    segment_file_name,
)
from ottla.storage.producers.snapshot import decode_snapshot
from ottla.storage.segments.segment_recovery import read_valid_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clients.range_fetcher import OffsetRange
    from ottla.storage.batches import BatchHeader
    from ottla.storage.directory import File
    from ottla.storage.indexes.transaction_index import AbortedTransaction
    from ottla.storage.remote.segment import RemoteSegment
    from ottla.tables.read_only import ReadOnlyDirectory
    from ottla.tables.tier import PartitionTier
    from ottla.types import TopicPartition

BLOCK_BYTES: Final = 1024 * 1024
"""Read at once: few calls, Arrow batches of some ten thousand rows, and buffers that fit caches."""
BATCH_MAX_BYTES: Final = 256 * 1024 * 1024
"""A batch that claims more is damaged: the header of a file is not trusted with memory."""
_LAST_OFFSET: Final = 1 << 62
SWAP_WAITS: Final = 100
SWAP_WAIT_S: Final = 0.02
"""While a cleaner replaces segments, for milliseconds, neither the old nor the new is named."""


class PartitionFiles:
    """The log of a partition in a log directory."""

    def __init__(
        self,
        directory: ReadOnlyDirectory,
        partition: TopicPartition,
        *,
        log_start_offset: int,
        high_watermark: int | None,
        tier: PartitionTier | None = None,
    ) -> None:
        """Take the checkpoints' offsets; without a high watermark all valid batches count."""
        self.tier = tier
        self.directory = directory
        self.partition = partition
        self.path = str(partition)
        segments = self.segments()
        first = segments[0] if segments else 0
        if tier is not None:
            first = min(first, tier.segments[0].start_offset)
        self.start_offset = max(log_start_offset, first)
        end = self._valid_end(segments) if high_watermark is None else high_watermark
        self.end_offset = max(self.start_offset, end)

    def segments(self) -> list[int]:
        """Return the base offsets of the segments; waits while a cleaner replaces some."""
        for _ in range(SWAP_WAITS):
            names = self.directory.list(self.path)
            if not any(name.endswith(SWAP_SUFFIX) for name in names):
                break
            time.sleep(SWAP_WAIT_S)
        found = [base_offset_of(name, LOG_SUFFIX) for name in names]
        return sorted(base for base in found if base is not None)

    def file_path(self, base_offset: int, suffix: str) -> str:
        """Return the path of a segment's file in the log directory."""
        return join(self.path, segment_file_name(base_offset, suffix))

    def open(self, base_offset: int) -> Any:
        """Open a segment's batches; FileNotFoundError when it was deleted."""
        return self.directory.open(self.file_path(base_offset, LOG_SUFFIX))

    def damaged(self, base_offset: int, position: int, offset: int, reason: str) -> KafkaError:
        """Return the error for bytes of a segment that are no batch; position -1 is in reason."""
        path = self.directory.root / self.file_path(base_offset, LOG_SUFFIX)
        at = f" at byte {position} (offset {offset})" if position >= 0 else ""
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{self.partition}: {path} is damaged{at}: {reason}; ottla log-repair shows what can "
            "be read",
        )

    def position_of(self, base_offset: int, offset: int, file: Any) -> int:
        """Return where to begin in a segment for an offset: at its start if the index is damaged.

        An entry is used only if the batch at its position is the one that it names.
        """
        if offset <= base_offset:
            return 0
        index = OffsetIndex(
            cast("Any", self.directory),
            self.file_path(base_offset, INDEX_SUFFIX),
            base_offset=base_offset,
            max_bytes=0,
        )
        try:
            found = index.lookup(offset)
            for header in walk_file(file, found.position, file.size()):
                if header.last_offset == found.offset or not found.position:
                    return found.position
                break
        except (OSError, CorruptMessage):
            pass
        return 0

    def offset_before(self, base_offset: int, timestamp_ms: int) -> int:
        """Return an offset before which a segment has no record as new as a time."""
        try:
            return self._time_index(base_offset).lookup(timestamp_ms - 1).offset
        except (OSError, CorruptMessage):
            return base_offset

    def max_timestamp(self, base_offset: int) -> int | None:
        """Return the newest time of a sealed segment by its index; None without one."""
        try:
            index = self._time_index(base_offset)
            return index.last().timestamp if index.count else None
        except (OSError, CorruptMessage):
            return None

    def _time_index(self, base_offset: int) -> TimeIndex:
        return TimeIndex(
            cast("Any", self.directory),
            self.file_path(base_offset, TIME_INDEX_SUFFIX),
            base_offset=base_offset,
            max_bytes=0,
        )

    def _valid_end(self, segments: list[int]) -> int:
        """Return the offset after the last batch with a valid checksum: a torn tail is ignored."""
        for base_offset in reversed(segments):
            with closing(self.open(base_offset)) as file:
                start = self.position_of(base_offset, _LAST_OFFSET, file)
                end = base_offset
                for header, _ in read_valid_batches(file, file.size(), start):
                    end = header.last_offset + 1
                if end > base_offset or len(segments) == 1:
                    return end
        return 0

    def headers(self, start: int, until: int) -> Iterator[BatchHeader]:
        """Yield the headers of the batches with offsets from start to before until."""
        bases = self.segments()
        for base_offset in bases[max(bisect_right(bases, start) - 1, 0) :]:
            if base_offset >= until:
                return
            with closing(self.open(base_offset)) as file:
                position = self.position_of(base_offset, start, file)
                try:
                    for header in walk_file(cast("File", file), position, file.size()):
                        if header.base_offset >= until:
                            return
                        if header.last_offset >= start:
                            yield header
                        if header.last_offset + 1 >= until:
                            return
                except CorruptMessage as error:
                    raise self.damaged(base_offset, -1, start, error.message) from error

    def offset_at(self, timestamp_ms: int, until: int) -> int | None:
        """Return the first offset of a batch as new as a time; None without one.

        Records before it in the batch may be older: rows are filtered by their own times.
        """
        bases = self.segments()
        for segment in self.remote_segments(self.start_offset, until):
            if segment.max_timestamp_ms >= timestamp_ms:
                return segment.start_offset
        for number, base_offset in enumerate(bases):
            newest = self.max_timestamp(base_offset) if number + 1 < len(bases) else None
            if newest is not None and newest < timestamp_ms:
                continue
            start = self.offset_before(base_offset, timestamp_ms)
            end = bases[number + 1] if number + 1 < len(bases) else until
            for header in self.headers(max(start, base_offset), min(end, until)):
                if header.max_timestamp >= timestamp_ms:
                    return header.base_offset
        return None

    def last_stable_offset(self, until: int) -> int:
        """Return the first offset of the transactions that are open at an offset, or that offset.

        From the newest snapshot of the producers before it, and the batches after the snapshot.
        """
        names = self.directory.list(self.path)
        snapshots = sorted(
            offset
            for name in names
            if (offset := base_offset_of(name, SNAPSHOT_SUFFIX)) is not None and offset <= until
        )
        start, first_offsets = self.start_offset, dict[int, int]()
        for offset in reversed(snapshots):
            try:
                data = self.directory.read_file(self.file_path(offset, SNAPSHOT_SUFFIX))
                first_offsets = {
                    entry.producer_id: entry.transaction_first_offset
                    for entry in decode_snapshot(data)
                    if entry.transaction_first_offset >= 0
                }
            except (OSError, CorruptMessage):
                continue  # an older one does, with more batches
            start = max(start, offset)
            break
        for header in self.headers(start, until):
            if header.is_control:
                first_offsets.pop(header.producer_id, None)
            elif header.is_transactional:
                first_offsets.setdefault(header.producer_id, header.base_offset)
        return max(min(first_offsets.values(), default=until), self.start_offset)

    def remote_segments(self, start: int, until: int) -> list[RemoteSegment]:
        """Return the segments with offsets of a range that are in remote storage alone."""
        if self.tier is None:
            return []
        local = next(iter(self.segments()), until)
        return [
            one
            for one in self.tier.segments
            if one.end_offset >= start and one.start_offset < min(local, until)
        ]

    def aborted(self, start: int, until: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in a range, by their markers' offsets."""
        found: list[AbortedTransaction] = []
        for index in self._transaction_indexes(start):
            found += index.overlapping(start, until)
            if not index.is_followed_below(until):
                break
        return sorted(found, key=lambda entry: entry.last_offset)

    def _transaction_indexes(self, start: int) -> Iterator[TransactionIndex]:
        """Yield those of the segments from an offset on: a marker may be in any later one."""
        for segment in self.remote_segments(start, _LAST_OFFSET):
            assert self.tier is not None
            yield self.tier.transaction_index(segment)
        bases = self.segments()
        for base_offset in bases[max(bisect_right(bases, start) - 1, 0) :]:
            path = self.file_path(base_offset, TRANSACTION_INDEX_SUFFIX)
            yield TransactionIndex(cast("Any", self.directory), path)


class SkipRule(NamedTuple):
    """Which segments and blocks a reader of files may leave out; rows have filters of their own."""

    min_timestamp_ms: int | None = None


class FileReader:
    """Reads one range of a partition's offsets, as `clients.range_fetcher.RangeFetcher` does."""

    def __init__(
        self,
        files: PartitionFiles,
        offset_range: OffsetRange,
        *,
        read_committed: bool,
        skip_rule: SkipRule,
    ) -> None:
        self.files = files
        self.offset_range = offset_range
        self.position = offset_range.start
        self._aborted = (
            files.aborted(offset_range.start, offset_range.until) if read_committed else []
        )
        self._markers = [entry.last_offset for entry in self._aborted]
        self._min_timestamp_ms = skip_rule.min_timestamp_ms

    def advance(self, next_offset: int) -> None:
        """Continue at next_offset."""
        self.position = max(self.position, next_offset)

    def chunks(self) -> Iterator[Chunk]:
        """Yield complete batches up to the end of the range; the caller advances after each.

        KafkaError CORRUPT_MESSAGE names the file and the position of bytes that cannot be read.
        """
        until = self.offset_range.until
        while self.position < until:
            bases = self.files.segments()
            remote = self.files.remote_segments(self.position, until)
            if remote and (not bases or self.position < bases[0]):
                yield from self._remote_chunks(remote[0], bases[0] if bases else until)
                continue
            number = max(bisect_right(bases, self.position) - 1, 0)
            if not bases or bases[number] >= until:
                return
            is_last = number + 1 == len(bases)
            end = until if is_last else min(bases[number + 1], until)
            if self.position < bases[number]:
                self._skip_deleted(bases[number])
            if is_last or not self._is_too_old(bases[number]):
                try:
                    file = self.files.open(bases[number])
                except FileNotFoundError:
                    continue  # compacted or deleted since it was listed
                with closing(file):
                    yield from self._segment_chunks(bases[number], file, end, is_last=is_last)
                    if is_last and self.position < end:
                        reason = f"the log ends before offset {end}"
                        raise self._damaged(bases[number], file.size(), reason)
            self.advance(end)

    def _skip_deleted(self, first_local: int) -> None:
        """Skip offsets that retention deleted; KafkaError if they may be in remote storage."""
        if self.files.tier is not None:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.files.partition}: offsets {self.position} to {first_local - 1} have left "
                "the disk since the scan was made: make it again to read them from remote storage",
            )
        self.advance(first_local)

    def _remote_chunks(self, segment: RemoteSegment, first_local: int) -> Iterator[Chunk]:
        end = min(segment.end_offset + 1, first_local, self.offset_range.until)
        oldest = self._min_timestamp_ms
        if oldest is None or segment.max_timestamp_ms >= oldest:
            assert self.files.tier is not None
            with closing(self.files.tier.open(segment)) as file:
                yield from self._segment_chunks(segment.start_offset, file, end, is_last=False)
        self.advance(end)

    def _is_too_old(self, base_offset: int) -> bool:
        if self._min_timestamp_ms is None:
            return False
        newest = self.files.max_timestamp(base_offset)
        return newest is not None and newest < self._min_timestamp_ms

    def _segment_chunks(
        self, base_offset: int, file: Any, end: int, *, is_last: bool
    ) -> Iterator[Chunk]:
        start = self.position
        if self._min_timestamp_ms is not None:
            start = max(start, self.files.offset_before(base_offset, self._min_timestamp_ms))
        position, size = self.files.position_of(base_offset, start, file), file.size()
        block_bytes, following = BLOCK_BYTES, base_offset
        while position < size and self.position < end:
            requested = min(block_bytes, size - position)
            data = memoryview(file.read(position, requested))
            headers = self._headers(data, base_offset, position)
            if headers:
                # no checksum has a batch's first offset
                for header in headers:
                    if header.base_offset < following or header.last_offset < header.base_offset:
                        reason = f"base offset {header.base_offset} after {following - 1}"
                        raise self._damaged(base_offset, position + header.position, reason)
                    following = header.last_offset + 1
                last = headers[-1]
                chunk = data[: last.position + last.size]
                if self._has_rows(headers):
                    yield Chunk(chunk, self._aborted_in(headers[0].base_offset, last.last_offset))
                self.advance(last.last_offset + 1)
                position += len(chunk)
                block_bytes = BLOCK_BYTES
                continue
            block_bytes = self._claimed(data, base_offset, position)
            if position + block_bytes > size or len(data) < requested:  # it may be cut meanwhile
                if is_last:  # the node appends, or a crash tore the last batch
                    return
                raise self._damaged(base_offset, position, "the segment ends inside a batch")

    def _headers(self, data: memoryview, base_offset: int, position: int) -> list[BatchHeader]:
        """Return the complete batches of a block, up to damage unless it is the first."""
        try:
            return whole_batches(data)
        except CorruptMessage as error:
            headers: list[BatchHeader] = []
            with suppress(CorruptMessage):
                headers.extend(
                    parse_header(data, batch.position, batch.position)
                    for batch in iterate_batches(data, partial_tail=True)
                )
            if not headers:
                raise self._damaged(base_offset, position, error.message) from error
            return headers

    def _has_rows(self, headers: list[BatchHeader]) -> bool:
        oldest = self._min_timestamp_ms
        return headers[-1].last_offset >= self.position and (
            oldest is None or any(header.max_timestamp >= oldest for header in headers)
        )

    def _claimed(self, data: memoryview, base_offset: int, position: int) -> int:
        """Return the size of a batch that is larger than a block."""
        if len(data) < LOG_OVERHEAD_BYTES:
            return LOG_OVERHEAD_BYTES + BLOCK_BYTES
        size = int.from_bytes(data[LENGTH_POSITION:LOG_OVERHEAD_BYTES], "big", signed=True)
        size += LOG_OVERHEAD_BYTES
        if not LOG_OVERHEAD_BYTES < size <= BATCH_MAX_BYTES:
            raise self._damaged(base_offset, position, f"a batch claims {size} bytes")
        return size

    def _damaged(self, base_offset: int, position: int, reason: str) -> KafkaError:
        return self.files.damaged(base_offset, position, self.position, reason)

    def _aborted_in(self, start: int, last: int) -> list[tuple[int, int]]:
        ended = self._aborted[bisect_left(self._markers, start) :]
        return [
            (entry.producer_id, entry.first_offset) for entry in ended if entry.first_offset <= last
        ]
