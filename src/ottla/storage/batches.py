"""Batch headers, parsed from bytes or a file without reading records.

Hot path: `scan_batches` runs once per follower append and `walk_file` in every cold read
(benchmarks/log.py).
Kafka: org.apache.kafka.common.record.FileLogInputStream and DefaultRecordBatch's shallow fields.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import CorruptMessage
from ottla.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, NO_PRODUCER_ID, NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.storage.directory import File
    from ottla.types import Buffer

MIN_BATCH_BYTES = 14 + LOG_OVERHEAD_BYTES
WALK_CHUNK_BYTES = 8192
_MAGIC_POSITION = 16
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_V2 = Struct(">qiibIhiqqqhii")
_PREFIX = Struct(">qiib")
_LEGACY_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_LENGTH_POSITION = 8
_new_tuple = tuple.__new__  # a named tuple's own constructor is a Python function


class BatchHeader(NamedTuple):
    """One batch's position and header fields; `position` counts from where the scan began."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & _TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds markers instead of data."""
        return self.attributes & _CONTROL != 0

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, which wraps at 2^31; -1 without sequences."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + (self.last_offset - self.base_offset)) & 0x7FFF_FFFF


def parse_header(view: Buffer, start: int, position: int) -> BatchHeader:
    """Parse the header at `start` of view; the caller has checked that its bytes are there."""
    if view[start + _MAGIC_POSITION] < 2:
        return _parse_legacy(view, start, position)
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = _V2.unpack_from(view, start)
    if magic != 2:
        raise CorruptMessage(f"unknown record format {magic} at position {position}")
    header: BatchHeader = _new_tuple(
        BatchHeader,
        (
            position,
            length + LOG_OVERHEAD_BYTES,
            base_offset,
            base_offset + last_offset_delta,
            leader_epoch,
            magic,
            crc,
            attributes,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        ),
    )
    return header


def _parse_legacy(view: Buffer, start: int, position: int) -> BatchHeader:
    """Read a v0 or v1 message, whose offset is that of its last (inner) record."""
    offset, length, crc, magic = _PREFIX.unpack_from(view, start)
    timestamp = NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = _LEGACY_TIMESTAMP.unpack_from(view, start + 18)
    return BatchHeader(
        position,
        length + LOG_OVERHEAD_BYTES,
        offset,
        offset,
        -1,
        magic,
        crc & 0xFFFF_FFFF,
        view[start + 17] & 0x0F,
        timestamp,
        timestamp,
        NO_PRODUCER_ID,
        -1,
        -1,
        -1,
    )


def header_bytes_needed(view: Buffer, start: int) -> int:
    """Return the header's size from start on; `view` holds at least 17 of its bytes."""
    return HEADER_BYTES if view[start + _MAGIC_POSITION] >= 2 else MIN_BATCH_BYTES


def scan_batches(view: Buffer) -> list[BatchHeader]:
    """Return the headers of contiguous complete batches; CorruptMessage otherwise."""
    headers: list[BatchHeader] = []
    position = 0
    end = len(view)
    while position < end:
        if end - position < MIN_BATCH_BYTES or (
            view[position + _MAGIC_POSITION] >= 2 and end - position < HEADER_BYTES
        ):
            raise CorruptMessage(f"{end - position} bytes at position {position} hold no batch")
        header = parse_header(view, position, position)
        if header.size < MIN_BATCH_BYTES or header.size > end - position:
            raise CorruptMessage(f"a batch at position {position} claims {header.size} bytes")
        headers.append(header)
        position += header.size
    return headers


def walk_file(file: File, position: int, end: int) -> Iterator[BatchHeader]:
    """Yield headers from position on, reading little else; stops at an incomplete batch.

    `BatchHeader.position` is the position in the file. CorruptMessage for an invalid header.
    """
    chunk = b""
    chunk_start = position
    while position + MIN_BATCH_BYTES <= end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk_start, at = position, 0
            chunk = file.read(position, min(WALK_CHUNK_BYTES, end - position))
            if len(chunk) < MIN_BATCH_BYTES:
                return
        if len(chunk) - at < header_bytes_needed(chunk, at):
            return
        header = parse_header(chunk, at, position)
        if header.size < MIN_BATCH_BYTES:
            raise CorruptMessage(f"a batch at position {position} claims {header.size} bytes")
        if position + header.size > end:
            return
        yield header
        position += header.size


def leading_batches_size(view: Buffer, most: int) -> int:
    """Return the bytes of the first complete batches of view, `most` at most."""
    position, end = 0, len(view)
    while most > 0 and position + LOG_OVERHEAD_BYTES <= end:
        (length,) = _LENGTH.unpack_from(view, position + _LENGTH_POSITION)
        if length < 0 or position + LOG_OVERHEAD_BYTES + length > end:
            break
        position += LOG_OVERHEAD_BYTES + length
        most -= 1
    return position


def whole_batches_size(view: Buffer) -> int:
    """Return the bytes of the batches at the start of view that are complete."""
    position, end = 0, len(view)
    while position + LOG_OVERHEAD_BYTES <= end:
        (length,) = _LENGTH.unpack_from(view, position + _LENGTH_POSITION)
        if length < 0 or position + LOG_OVERHEAD_BYTES + length > end:
            break
        position += LOG_OVERHEAD_BYTES + length
    return position
