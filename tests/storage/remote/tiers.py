"""A tier in memory: segments of a log copied there, with index caches and faults for tests."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from ottla.storage.indexes.offset_index import OffsetIndex
from ottla.storage.indexes.time_index import TimeIndex
from ottla.storage.indexes.transaction_index import TransactionIndex
from ottla.storage.remote.segment import RemoteSegment, SegmentState
from ottla.storage.remote.storage_manager import IndexKind, RemoteResourceNotFoundError
from ottla.testing.disk import SimulatedDisk
from ottla.types import Uuid
from tests.storage.logs import NOW_MS, TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.remote.storage_manager import SegmentFiles
    from ottla.storage.segments.segment import Segment

SUFFIXES = {
    IndexKind.OFFSET: ".index",
    IndexKind.TIMESTAMP: ".timeindex",
    IndexKind.TRANSACTION: ".txnindex",
}


class Indexes(NamedTuple):
    """The indexes of a segment, for one use."""

    offset_index: OffsetIndex
    time_index: TimeIndex
    transaction_index: TransactionIndex


class MemoryTier:
    """Remote storage, and a cache of its indexes, in memory."""

    def __init__(self) -> None:
        self.logs: dict[Uuid, bytes] = {}
        self.indexes: dict[tuple[Uuid, IndexKind], bytes] = {}
        self.before_read: Callable[[RemoteSegment], None] = lambda _segment: None
        """Called with each read of a segment; it may raise or change what is there."""
        self.read_count = 0

    def configure(self, settings: Mapping[str, str]) -> None:
        """Take nothing."""

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        """Refuse: `copy` fills it."""
        raise NotImplementedError

    def read_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        """Return the bytes, read in pieces of odd sizes."""
        self.read_count += 1
        self.before_read(segment)
        data = self.logs.get(segment.segment_id)
        if data is None:
            raise RemoteResourceNotFoundError(f"no segment {segment.segment_id}")
        return _InPieces(data[start : None if end is None else end + 1])

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        """Return an index."""
        found = self.indexes.get((segment.segment_id, kind))
        if found is None:
            raise RemoteResourceNotFoundError(f"no {kind.name} of {segment.segment_id}")
        return io.BytesIO(found)

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete a segment."""
        self.logs.pop(segment.segment_id, None)

    def close(self) -> None:
        """Do nothing."""

    @contextmanager
    def opened(self, segment: RemoteSegment) -> Iterator[Indexes]:
        """Return the indexes of a segment."""
        disk = SimulatedDisk()
        for kind, suffix in SUFFIXES.items():
            data = self.indexes.get((segment.segment_id, kind))
            if data is not None:
                disk.write_file_atomically(f"0{suffix}", data)
        base = segment.start_offset
        yield Indexes(
            OffsetIndex(disk, "0.index", base_offset=base, max_bytes=1 << 20),
            TimeIndex(disk, "0.timeindex", base_offset=base, max_bytes=1 << 20),
            TransactionIndex(disk, "0.txnindex"),
        )

    def copy(self, log: PartitionLog, segment: Segment, number: int = 0) -> RemoteSegment:
        """Copy an inactive segment of a log."""
        segment_id = Uuid(bytes([number]) * 16)
        self.logs[segment_id] = segment.file.read(0, segment.size)
        for kind, suffix in SUFFIXES.items():
            path = f"{log.name}/{segment.base_offset:020d}{suffix}"
            if log.directory.exists(path):
                self.indexes[segment_id, kind] = log.directory.read_file(path)
        last_offset = segment.next_offset() - 1
        epochs = log.leader_epochs
        first_epoch = epochs.epoch_for_offset(segment.base_offset)
        later = [one for one in epochs.entries if segment.base_offset < one[1] <= last_offset]
        return RemoteSegment(
            topic_id=TOPIC_ID,
            topic="t",
            partition=0,
            segment_id=segment_id,
            start_offset=segment.base_offset,
            end_offset=last_offset,
            leader_epochs=(
                (first_epoch, segment.base_offset),
                *((one[0], one[1]) for one in later),
            ),
            size_bytes=segment.size,
            max_timestamp_ms=segment.max_timestamp,
            broker_id=1,
            event_timestamp_ms=NOW_MS,
            state=SegmentState.COPY_SEGMENT_FINISHED,
            is_transaction_index_empty=(segment_id, IndexKind.TRANSACTION) not in self.indexes,
        )

    def take_over(self, log: PartitionLog, count: int) -> list[RemoteSegment]:
        """Copy the oldest segments of a log, and delete them there."""
        oldest = log.segments.ordered[:count]
        copied = [self.copy(log, segment, number) for number, segment in enumerate(oldest)]
        log.retire_segments(oldest, NOW_MS)
        return copied


class _InPieces(io.BytesIO):
    """A stream that returns less than it is asked for, as sockets do."""

    def read(self, size: int | None = -1) -> bytes:
        """Return some bytes."""
        return super().read(size if size is None or size < 2 else size // 2 + 1)
