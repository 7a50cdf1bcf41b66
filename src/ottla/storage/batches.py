"""Batch headers, parsed from bytes or a file without reading records.

Compiled by Cython with `batches.pxd`; runs uncompiled too.

Hot path: `whole_batches` runs once per follower append and `walk_file` in every cold read
(benchmarks/log.py).
Kafka: org.apache.kafka.common.record.FileLogInputStream and DefaultRecordBatch's shallow fields.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla import native
from ottla.errors import CorruptMessage
from ottla.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, NO_PRODUCER_ID, NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.storage.directory import File
    from ottla.types import Buffer

MIN_BATCH_BYTES = 14 + LOG_OVERHEAD_BYTES
WALK_CHUNK_BYTES = 8192
_MAGIC_POSITION = 16
_MAGIC = 2
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_PREFIX = Struct(">qiib")
_LEGACY_TIMESTAMP = Struct(">q")
_LENGTH_POSITION = 8


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
    data = native.bytes_of(view)
    magic = data[start + _MAGIC_POSITION]
    if magic != _MAGIC:
        if magic > _MAGIC:
            raise CorruptMessage(f"unknown record format {magic} at position {position}")
        return _parse_legacy(view, start, position)
    base_offset = native.int_at(data, start, 8)
    header: BatchHeader = native.new_tuple(
        BatchHeader,
        (
            position,
            native.int_at(data, start + 8, 4) + LOG_OVERHEAD_BYTES,
            base_offset,
            base_offset + native.int_at(data, start + 23, 4),
            native.int_at(data, start + 12, 4),
            magic,
            native.int_at(data, start + 17, 4) & 0xFFFF_FFFF,
            native.int_at(data, start + 21, 2),
            native.int_at(data, start + 27, 8),
            native.int_at(data, start + 35, 8),
            native.int_at(data, start + 43, 8),
            native.int_at(data, start + 51, 2),
            native.int_at(data, start + 53, 4),
            native.int_at(data, start + 57, 4),
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


def whole_batches(view: Buffer) -> list[BatchHeader]:
    """Return the headers of the complete batches at the start of view.

    CorruptMessage when one claims fewer bytes than a header has, or is of an unknown format.
    """
    headers: list[BatchHeader] = []
    data = native.bytes_of(view)
    position, end = 0, len(view)
    while end - position >= MIN_BATCH_BYTES:
        size = native.int_at(data, position + _LENGTH_POSITION, 4) + LOG_OVERHEAD_BYTES
        least = HEADER_BYTES if data[position + _MAGIC_POSITION] >= _MAGIC else MIN_BATCH_BYTES
        if size < least:
            raise CorruptMessage(f"a batch at position {position} claims {size} bytes")
        if size > end - position:
            break
        headers.append(parse_header(view, position, position))
        position += size
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


def leading_batches_size(view: Buffer, max_count: int | None = None) -> int:
    """Return the bytes of the first complete batches of view, `max_count` at most."""
    return sum([batch.size for batch in whole_batches(view)[:max_count]])
