"""One segment: a `.log` file of batches with its offset, time and transaction index.

Hot path: `Segment.append` and `Segment.position_of` (benchmarks/log.py). The places of the last
batches are kept in memory, so that reads at the tail and reads up to the high watermark cost no
system call. Kafka: org.apache.kafka.storage.internals.log.LogSegment.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage
from ottla.records.batch import NO_TIMESTAMP
from ottla.storage.batches import walk_file
from ottla.storage.directory import join
from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.indexes.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex, OffsetPosition
from ottla.storage.indexes.time_index import TimeIndex, TimestampOffset
from ottla.storage.indexes.transaction_index import TransactionIndex
from ottla.storage.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from ottla.storage.producers.rebuild import SegmentFile
from ottla.storage.segments.segment_recovery import rebuild_indexes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.storage.batches import BatchHeader
    from ottla.storage.directory import Directory, File
    from ottla.storage.log.config import LogConfig
    from ottla.types import Buffer

_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
TAIL_BATCHES = 128
_UNKNOWN = -2  # max_timestamp not read yet
_EMPTY: array[int] = array("q")


class Segment:
    """Batches from base_offset on; size is where the next one goes."""

    __slots__ = (
        "_bytes_since_index",
        "_first_timestamp",
        "_is_index_full",
        "_max_timestamp",
        "_partition_dir",
        "_tail_last_offsets",
        "_tail_positions",
        "base_offset",
        "created_ms",
        "directory",
        "file",
        "index_interval_bytes",
        "indexes_rebuilt",
        "is_torn",
        "is_used",
        "max_timestamp_offset",
        "needs_sync",
        "offset_index",
        "roll_jitter_ms",
        "size",
        "suffix",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        directory: Directory,
        partition_dir: str,
        base_offset: int,
        *,
        config: LogConfig,
        now_ms: int,
    ) -> None:
        path = join(partition_dir, segment_file_name(base_offset, ""))
        limit = config.segment_index_bytes
        self.directory = directory
        self._partition_dir = partition_dir
        self.base_offset = base_offset
        self.offset_index = OffsetIndex(
            directory, path + INDEX_SUFFIX, base_offset=base_offset, max_bytes=limit
        )
        self.time_index = TimeIndex(
            directory, path + TIME_INDEX_SUFFIX, base_offset=base_offset, max_bytes=limit
        )
        self.transaction_index = TransactionIndex(directory, path + TRANSACTION_INDEX_SUFFIX)
        self.index_interval_bytes = config.index_interval_bytes
        self.created_ms = now_ms
        self.roll_jitter_ms = 0
        self.suffix = ""
        """After those of the files: empty, or for a segment to be removed or not in use yet."""
        self.is_torn = False
        self.needs_sync = False
        self.is_used = False
        self.indexes_rebuilt = False
        self.file: File
        self.size = 0
        self._bytes_since_index = 0
        self._is_index_full = False
        self._first_timestamp = _UNKNOWN
        self._max_timestamp = _UNKNOWN
        self.max_timestamp_offset = base_offset
        self._tail_last_offsets = _EMPTY
        self._tail_positions = _EMPTY

    @classmethod
    def create(
        cls,
        directory: Directory,
        partition_dir: str,
        base_offset: int,
        *,
        config: LogConfig,
        now_ms: int,
        suffix: str = "",
    ) -> Segment:
        """Make the files of a new, active segment, over whatever has their names."""
        self = cls(directory, partition_dir, base_offset, config=config, now_ms=now_ms)
        self.suffix = suffix
        self.offset_index.path = self.path(INDEX_SUFFIX)
        self.time_index.path = self.path(TIME_INDEX_SUFFIX)
        self.transaction_index.path = self.path(TRANSACTION_INDEX_SUFFIX)
        self.file = directory.open(self.path(LOG_SUFFIX), create=True)
        if self.file.size():
            self.file.truncate(0)
        self.offset_index.create(preallocate=config.preallocate_indexes)
        self.time_index.create(preallocate=config.preallocate_indexes)
        if directory.exists(self.transaction_index.path):
            self.transaction_index.reset()
        self._first_timestamp = self._max_timestamp = NO_TIMESTAMP
        return self

    @classmethod
    def open(
        cls,
        directory: Directory,
        partition_dir: str,
        base_offset: int,
        *,
        config: LogConfig,
        now_ms: int,
    ) -> Segment:
        """Open an existing segment; only the log file's length is read."""
        self = cls(directory, partition_dir, base_offset, config=config, now_ms=now_ms)
        self.file = directory.open(self.path(LOG_SUFFIX))
        self.size = self.file.size()
        return self

    def reopened(self, config: LogConfig) -> Segment:
        """Return another object over the files, for a worker; see `opened`. It changes none."""
        copy = Segment(
            self.directory, self._partition_dir, self.base_offset, config=config, now_ms=0
        )
        copy.suffix = self.suffix
        copy.size = self.size
        copy.indexes_rebuilt = True
        return copy

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the file of a segment from `reopened`; OSError when it was removed."""
        self.file = self.directory.open(self.path(LOG_SUFFIX))
        try:
            yield
        finally:
            self.file.close()

    def __repr__(self) -> str:
        return f"Segment({self.path('')}, size={self.size})"

    def readable(self) -> SegmentFile:
        """Return where its batches are, for a worker."""
        return SegmentFile(self.base_offset, self.path(LOG_SUFFIX), self.size)

    def path(self, suffix: str) -> str:
        """Return the path of one of its files."""
        return join(self._partition_dir, segment_file_name(self.base_offset, suffix) + self.suffix)

    # Appending

    def append(
        self, buffers: Sequence[Buffer], size: int, batches: Sequence[tuple[int, int, int]]
    ) -> None:
        """Write batches at the end and index them; an error leaves the segment as it was.

        OSError when the disk fails, CorruptMessage when the end cannot be read. `size` is the sum
        of the buffers' bytes; the batches, each by its last offset, largest timestamp and size, lie
        in them end to end.
        """
        file = self.file
        position = self.size
        self.is_used = True
        largest = self._max_timestamp
        if largest == _UNKNOWN:
            largest = self.max_timestamp  # before the write: it may fail
        try:
            file.append(buffers)
        except OSError as error:
            if is_exhaustion(error):
                raise
            self.is_torn = True
            file.truncate(position)  # raises again when the torn tail cannot be cut
            self.is_torn = False
            raise
        self.size = position + size
        offsets, positions = self._tail_last_offsets, self._tail_positions
        if not offsets:
            offsets, positions = self._tail_last_offsets, self._tail_positions = (
                array("q"),
                array("q"),
            )
        since = self._bytes_since_index
        for last_offset, timestamp, batch_bytes in batches:
            if timestamp > largest:
                largest = self._max_timestamp = timestamp
                self.max_timestamp_offset = last_offset
            if since > self.index_interval_bytes:
                self._index(last_offset, position)
                since = 0
            offsets.append(last_offset)
            positions.append(position)
            position += batch_bytes
            since += batch_bytes
        self._bytes_since_index = since
        if self.size == size:
            self._first_timestamp = batches[0][1]
        if len(offsets) > TAIL_BATCHES:
            del offsets[: -TAIL_BATCHES // 2], positions[: -TAIL_BATCHES // 2]

    def begin_indexing(self) -> None:
        """Start over, for a segment whose indexes are rebuilt."""
        self._bytes_since_index = 0
        self._max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self._first_timestamp = _UNKNOWN
        self._tail_last_offsets = self._tail_positions = _EMPTY

    def index_batch(self, batch: BatchHeader, position: int) -> None:
        """Index one batch that lies at position, as `append` does."""
        if batch.max_timestamp > self._max_timestamp:
            self._max_timestamp = batch.max_timestamp
            self.max_timestamp_offset = batch.last_offset
        if self._bytes_since_index > self.index_interval_bytes:
            self.offset_index.append(batch.last_offset, position)
            self.time_index.append_if_newer(self._max_timestamp, self.max_timestamp_offset)
            self._bytes_since_index = 0
        self._bytes_since_index += batch.size

    def _index(self, offset: int, position: int) -> None:
        """Add an entry to both indexes; a failed write is repeated by the flush.

        Raises nothing: the batch is in the log by now.
        """
        try:
            is_full = self.offset_index.append(offset, position)
            self._is_index_full = (
                self.time_index.append_if_newer(self._max_timestamp, self.max_timestamp_offset)
                or is_full
            )
        except (OSError, CorruptMessage):
            self._note_full_index()

    def modified_ms(self) -> int:
        """Return when the log file was written to last: the age of records without timestamps."""
        return self.directory.modified_ms(self.path(LOG_SUFFIX))

    def _note_full_index(self) -> None:
        """Update whether an index is full; called when entries may have changed."""
        self._is_index_full = self.offset_index.is_full or self.time_index.is_full

    def should_roll(
        self, size: int, max_timestamp: int, last_offset: int, now_ms: int, config: LogConfig
    ) -> bool:
        """Whether batches of this size and timestamp belong into a new segment.

        Its age is measured by record time where records have one, else by the clock.
        """
        if self.size > 0:  # an empty segment neither ages nor is too large
            if self.size > config.segment_bytes - size:
                return True
            first = self._first_timestamp
            if first == _UNKNOWN:
                first = self.first_timestamp
            waited_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
            if waited_ms > config.segment_ms - self.roll_jitter_ms:
                return True
        return last_offset - self.base_offset > MAX_RELATIVE_OFFSET or self._is_index_full

    @property
    def first_timestamp(self) -> int:
        """The first batch's largest timestamp, from which segment.ms counts; -1 without one."""
        if self._first_timestamp == _UNKNOWN:
            self._first_timestamp = NO_TIMESTAMP
            for header in walk_file(self.file, 0, self.size):
                self._first_timestamp = header.max_timestamp
                break
        return self._first_timestamp

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp so far, -1 without one; read from the files on first use."""
        if self._max_timestamp == _UNKNOWN:
            self._read_max_timestamp()
        return self._max_timestamp

    @property
    def knows_max_timestamp(self) -> bool:
        """Whether `max_timestamp` needs no file."""
        return self._max_timestamp != _UNKNOWN

    def take_max_timestamp(self, copy: Segment) -> None:
        """Copy the timestamp that a worker read, unless the segment has changed."""
        if copy.knows_max_timestamp and not self.knows_max_timestamp and copy.size == self.size:
            self._max_timestamp = copy.max_timestamp
            self.max_timestamp_offset = copy.max_timestamp_offset

    def _read_max_timestamp(self) -> None:
        """Take the time index's last entry and walk the batches that are newer."""
        try:
            best = self.time_index.last()
        except CorruptMessage:
            self._heal()
            best = self.time_index.last()
        for header in walk_file(self.file, self._walk_start(best.offset), self.size):
            if header.max_timestamp > best.timestamp:
                best = TimestampOffset(header.max_timestamp, header.last_offset)
        self._max_timestamp, self.max_timestamp_offset = best

    # Reading

    def position_of(self, offset: int) -> int | None:
        """Return where the batch that holds offset, or the next, starts; None after the last."""
        place = self.place_of(offset)
        return None if place is None else place[0]

    def place_of(self, offset: int) -> tuple[int, int] | None:
        """Return position and size of the batch that holds offset, or of the next one."""
        self.is_used = True
        offsets = self._tail_last_offsets
        if offsets and offset > offsets[0]:
            number = bisect_left(offsets, offset)
            if number == len(offsets):
                return None
            positions = self._tail_positions
            end = positions[number + 1] if number + 1 < len(positions) else self.size
            return positions[number], end - positions[number]
        for header in self._headers_near(offset):
            if header.last_offset >= offset:
                return header.position, header.size
        return None

    def batch_at(self, offset: int) -> BatchHeader | None:
        """Return the header of the batch that holds offset, or of the next one."""
        return next(self.walk(offset), None)

    def walk(self, offset: int) -> Iterator[BatchHeader]:
        """Yield the headers from the batch that holds offset on."""
        for header in self._headers_near(offset):
            if header.last_offset >= offset:
                yield header

    def _headers_near(self, offset: int) -> Iterator[BatchHeader]:
        """Walk from the tail's or the index's place for offset, at most one interval before it.

        An entry is trusted only when a batch begins there that has not passed its offset.
        """
        offsets = self._tail_last_offsets
        if offsets and offset > offsets[0]:
            number = bisect_left(offsets, offset)
            start = self._tail_positions[number] if number < len(offsets) else self.size
            return walk_file(self.file, start, self.size)
        try:
            known, start = self.offset_index.lookup(offset)
            headers = walk_file(self.file, start, self.size)
            first = next(headers, None)
            if start == 0 or (first and self.base_offset <= first.base_offset <= known):
                return headers if first is None else chain((first,), headers)
        except CorruptMessage:
            pass
        self._heal()
        return walk_file(self.file, self._walk_start(offset), self.size)

    def _walk_start(self, offset: int) -> int:
        try:
            return self._checked_position(self.offset_index.lookup(offset))
        except CorruptMessage:
            self._heal()
            return self._checked_position(self.offset_index.lookup(offset))

    def _checked_position(self, entry: OffsetPosition) -> int:
        """Trust an entry only when a batch begins there that has not passed its offset."""
        offset, position = entry
        if position == 0:
            return 0
        for header in walk_file(self.file, position, self.size):
            if self.base_offset <= header.base_offset <= offset:
                return position
            break
        raise CorruptMessage(
            f"{self.offset_index.path} sends offset {offset} to position {position}, where its "
            "batch is not"
        )

    def _heal(self) -> None:
        """Rebuild the indexes from the log, once; CorruptMessage the second time."""
        if self.indexes_rebuilt:
            raise CorruptMessage(f"{self} cannot be read, though its indexes are new")
        self.indexes_rebuilt = True
        rebuild_indexes(self)
        self._note_full_index()

    def position_before(self, timestamp: int) -> int:
        """Return an offset before which no record is as new as timestamp, by the time index."""
        try:
            return self.time_index.lookup(timestamp).offset
        except CorruptMessage:
            self._heal()
            return self.time_index.lookup(timestamp).offset

    def last_indexed_position(self) -> int:
        """Return the position of the last batch that the index knows, 0 when it knows none."""
        try:
            return self._checked_position(self.offset_index.last())
        except CorruptMessage:
            self._heal()
            return self._checked_position(self.offset_index.last())

    def next_offset(self) -> int:
        """Return the offset after the last whole batch, by the index and a short walk."""
        last = self.base_offset - 1
        for header in walk_file(self.file, self.last_indexed_position(), self.size):
            last = header.last_offset
        return last + 1

    # Ends

    def find_cut(self, offset: int) -> BatchHeader | None:
        """Return the first batch that a truncation removes; nothing is changed yet.

        Damaged indexes are rebuilt; CorruptMessage when the segment cannot be truncated.
        """
        self.transaction_index.count_below(offset)
        try:
            self.offset_index.count_below(offset)
            self.time_index.count_below(offset)
        except CorruptMessage:
            rebuild_indexes(self)
            self._note_full_index()
        return self.batch_at(offset)

    def end_before(self, offset: int) -> int:
        """Return the offset after the last batch below offset; compaction leaves gaps."""
        end = self.base_offset
        if offset > end:
            for header in walk_file(self.file, self._walk_start(offset - 1), self.size):
                if header.last_offset >= offset:
                    break
                end = header.last_offset + 1
        return end

    def truncate_to(self, offset: int, header: BatchHeader | None, *, now_ms: int) -> int:
        """Drop every batch from the one of `find_cut` on; return the bytes cut."""
        self._tail_last_offsets = self._tail_positions = _EMPTY
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        cut = 0
        if header is not None:
            cut = self.size - header.position
            self.needs_sync = True
            self.file.truncate(header.position)
            self.size = header.position
        if self.size == 0:
            self.created_ms = now_ms
            self._first_timestamp = NO_TIMESTAMP
        self._bytes_since_index = 0
        self._max_timestamp = _UNKNOWN
        self._note_full_index()
        return cut

    def become_inactive(self) -> None:
        """Complete the indexes at a roll: the last timestamp entry, no preallocated space."""
        self.needs_sync = True
        self.time_index.append_if_newer(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.trim()
        self.time_index.trim()
        self._tail_last_offsets = self._tail_positions = _EMPTY
        if self.file.size() != self.size:
            self.file.truncate(self.size)

    def become_active(self) -> None:
        """Preallocate the index files again."""
        try:
            self.offset_index.preallocate()
            self.time_index.preallocate()
        except CorruptMessage:
            self._heal()
        self._note_full_index()

    def pin_for_sync(self, pinned: list[File], *, is_active: bool) -> None:
        """Pin the files that may hold bytes not yet durable and add each to `pinned`.

        One by one: after an OSError the caller unpins the files in the list. The file of
        an inactive segment is closed with its last `unpin`.
        """
        self.file.pin()
        pinned.append(self.file)
        if not is_active:
            self.file.close()
        for index in (self.offset_index, self.time_index, self.transaction_index):
            file = index.pin_for_sync()
            if file is not None:
                pinned.append(file)

    def sync_again(self) -> None:
        """Mark the files as not synced: the sync of pinned files may have failed."""
        self.needs_sync = True
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.sync_again()

    def close(self) -> None:
        """Trim loaded indexes and close all files."""
        if self.time_index.is_loaded and self._max_timestamp != _UNKNOWN:
            self.time_index.append_if_newer(self._max_timestamp, self.max_timestamp_offset)
        self.offset_index.trim()
        self.time_index.trim()
        self.close_files()

    def close_files(self) -> None:
        """Close the log file; the next use opens it again."""
        self.file.close()

    def release_if_idle(self, *, is_active: bool) -> bool:
        """Release descriptors and index memory of a segment not used since the last call."""
        was_used, self.is_used = self.is_used, False
        if was_used:
            return False
        if not is_active:
            self.offset_index.release()
            self.time_index.release()
            self.transaction_index.release()
        self.close_files()
        return True

    def change_suffix(self, suffix: str) -> None:
        """Rename the files; readers in flight keep theirs."""
        before = self._paths()
        self.suffix = suffix
        for old, new in zip(before, self._paths(), strict=True):
            if self.directory.exists(old):
                self.directory.rename(old, new)
        self._renamed()

    def moved(self, partition_dir: str) -> None:
        """Follow the partition's directory, which was renamed."""
        self._partition_dir = partition_dir
        self._renamed()

    def _renamed(self) -> None:
        self.file.moved(self.path(LOG_SUFFIX))
        self.offset_index.path = self.path(INDEX_SUFFIX)
        self.time_index.path = self.path(TIME_INDEX_SUFFIX)
        self.transaction_index.path = self.path(TRANSACTION_INDEX_SUFFIX)

    def remove_files(self) -> None:
        """Close and remove the files that exist."""
        self.close_files()
        self.remove_names()

    def remove_names(self) -> None:
        """Remove the files that exist; open ones stay open."""
        for path in self._paths():
            if self.directory.exists(path):
                self.directory.remove(path)

    def close_for_removal(self) -> list[str]:
        """Close the file; return the paths of its files and of its producer snapshot."""
        self.close_files()
        return [*self._paths(), self.path(SNAPSHOT_SUFFIX)]

    def _paths(self) -> list[str]:
        return [self.path(suffix) for suffix in _SUFFIXES]
