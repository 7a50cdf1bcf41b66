"""Reads of one segment in remote storage: batches from an offset on, aborts, offsets by time.

All functions block, in workers. Remote storage is not trusted: the checksum and the offsets of each
whole batch are checked before anybody gets it, and a size is believed only up to the segment's.

Kafka: RemoteLogManager.{read, addAbortedTransactions, lookupTimestamp}, RemoteLogInputStream.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.errors import CorruptMessage
from ottla.records.batches import batch_at
from ottla.storage.batches import (
    MIN_BATCH_BYTES,
    BatchHeader,
    header_bytes_needed,
    parse_header,
    whole_batches,
)
from ottla.storage.log.timestamps import TimestampAndOffset, find_in_batch
from ottla.storage.remote.storage_manager import RemoteStorageError

if TYPE_CHECKING:
    from typing import BinaryIO

    from ottla.storage.indexes.offset_index import OffsetIndex
    from ottla.storage.indexes.time_index import TimeIndex
    from ottla.storage.indexes.transaction_index import AbortedTransaction, TransactionIndex
    from ottla.storage.remote.segment import RemoteSegment
    from ottla.storage.remote.storage_manager import RemoteStore


class SegmentIndexes(Protocol):
    """The local copies of a remote segment's indexes, for one worker."""

    @property
    def offset_index(self) -> OffsetIndex:
        """Positions of some offsets."""

    @property
    def time_index(self) -> TimeIndex:
        """Offsets of some timestamps."""

    @property
    def transaction_index(self) -> TransactionIndex:
        """Aborted transactions that end in the segment."""


class SegmentPart(NamedTuple):
    """A remote segment as far as its records are those of a log."""

    segment: RemoteSegment
    end_offset: int
    """Where those end: after an unclean election it may be before the segment's end."""

    @property
    def is_whole(self) -> bool:
        """Whether all of the segment's records are the log's."""
        return self.end_offset > self.segment.end_offset

    def is_followed_by(self, offset: int) -> bool:
        """Whether the segment has an offset, and the part ends before it."""
        return self.end_offset <= offset <= self.segment.end_offset


class RemoteRecords(NamedTuple):
    """Batches of a segment; the last one may be cut."""

    records: bytes
    first_offset: int
    """Where the first batch begins."""
    end_offset: int
    """An offset before which all records end; from the offset index, so it may be too large."""


def read_records(
    storage: RemoteStore,
    indexes: SegmentIndexes,
    part: SegmentPart,
    offset: int,
    max_bytes: int,
    *,
    min_one_message: bool,
) -> RemoteRecords | None:
    """Return batches from the one that holds offset on; None when the part ends before it.

    With min_one_message the first batch comes whole, however large; without it there is nothing if
    the first batch does not fit. RemoteStorageError, CorruptMessage.
    """
    segment = part.segment
    position = indexes.offset_index.lookup(offset).position
    with closing(storage.read_segment(segment, position)) as stream:
        source = _BatchStream(stream, segment, position)
        batch = source.next()
        if position and batch is not None and batch[0].base_offset > offset:
            raise CorruptMessage(f"an index of {_name(segment)} points behind offset {offset}")
        while batch is not None and batch[0].last_offset < offset:
            batch = source.next()
        if batch is None or part.is_followed_by(batch[0].base_offset):
            return None
        header, data = batch
        if header.size > max_bytes and not min_one_message:
            return RemoteRecords(b"", header.base_offset, header.base_offset)
        records = data + source.read(max(max_bytes - header.size, 0))
    _check(records, segment, may_be_cut=source.size_left > 0)
    if not part.is_whole:
        records = _records_of(records, part)
    end_position = header.position + len(records)
    end_offset = indexes.offset_index.offset_from(end_position, segment.end_offset + 1)
    return RemoteRecords(records, header.base_offset, min(end_offset, part.end_offset))


def aborted_transactions(
    indexes: SegmentIndexes, part: SegmentPart, first_offset: int, end_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """Return those of a segment that overlap the offsets, and whether later segments have more."""
    index = indexes.transaction_index
    overlapping = index.overlapping(first_offset, end_offset)
    aborted = [one for one in overlapping if one.last_offset < part.end_offset]
    return aborted, not part.is_whole or index.is_followed_below(end_offset)


def offset_for_timestamp(
    storage: RemoteStore,
    indexes: SegmentIndexes,
    part: SegmentPart,
    timestamp: int,
    start_offset: int,
) -> TimestampAndOffset | None:
    """Return the first record of a part at or after timestamp, from an offset on."""
    segment = part.segment
    offset = max(indexes.time_index.lookup(timestamp).offset, start_offset)
    position = indexes.offset_index.lookup(offset).position
    with closing(storage.read_segment(segment, position)) as stream:
        source = _BatchStream(stream, segment, position)
        while (batch := source.next()) is not None:
            header, data = batch
            if part.is_followed_by(header.base_offset):
                break
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                _check(data, segment, may_be_cut=False)
                found = find_in_batch(data, timestamp, start_offset)
                if found is not None:
                    return found
    return None


class _BatchStream:
    """The batches of a segment from a position on."""

    def __init__(self, stream: BinaryIO, segment: RemoteSegment, position: int) -> None:
        if position > segment.size_bytes:
            raise CorruptMessage(f"an index points at {position} of {_name(segment)}")
        self._stream = stream
        self._segment = segment
        self._position = position

    @property
    def size_left(self) -> int:
        """The bytes of the segment that were not read."""
        return self._segment.size_bytes - self._position

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer only at the segment's end; RemoteStorageError if cut."""
        size = min(size, self.size_left)
        pieces, missing = [], size
        while missing > 0:
            piece = self._stream.read(missing)
            if not piece:
                raise RemoteStorageError(
                    f"{_name(self._segment)} ends {self.size_left - size + missing} bytes early"
                )
            pieces.append(piece)
            missing -= len(piece)
        self._position += size
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def next(self) -> tuple[BatchHeader, bytes] | None:
        """Return the next batch, with its position in the segment; None at the end."""
        position = self._position
        if self.size_left < MIN_BATCH_BYTES:
            return None
        head = self.read(MIN_BATCH_BYTES)
        head += self.read(header_bytes_needed(head, 0) - MIN_BATCH_BYTES)
        if len(head) == header_bytes_needed(head, 0):
            header = parse_header(head, 0, position)
            if len(head) <= header.size <= self._segment.size_bytes - position:
                return header, head + self.read(header.size - len(head))
        raise CorruptMessage(f"no batch of {_name(self._segment)} begins at {position}")


def _check(records: bytes, segment: RemoteSegment, *, may_be_cut: bool) -> None:
    """Raise CorruptMessage unless all whole batches are sound and of this segment, in order."""
    view, next_offset, end = memoryview(records), segment.start_offset, 0
    for header in whole_batches(view):
        if not next_offset <= header.base_offset <= header.last_offset <= segment.end_offset:
            raise CorruptMessage(
                f"{_name(segment)} has offsets {header.base_offset} to {header.last_offset} "
                f"where {next_offset} to {segment.end_offset} should be"
            )
        batch_at(view, header.position).check_crc()
        next_offset, end = header.last_offset + 1, header.position + header.size
    if end < len(records) and not may_be_cut:
        raise CorruptMessage(f"{_name(segment)} does not end with a batch")


def _records_of(records: bytes, part: SegmentPart) -> bytes:
    """Return the whole batches of a part."""
    end = 0
    for header in whole_batches(memoryview(records)):
        if part.is_followed_by(header.base_offset):
            break
        end = header.position + header.size
    return records[:end]


def _name(segment: RemoteSegment) -> str:
    return f"segment {segment.segment_id} of {segment.topic}-{segment.partition}"
