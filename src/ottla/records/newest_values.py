"""The newest value of each key of many batches, as compaction would leave them.

Compiled by Cython with `newest_values.pxd`; runs uncompiled too. Ordinary batches (format 2, not
compressed, no transaction) are walked here; at any other the walk stops.

Hot path: all of it. benchmarks/against_kafka/coordinator_loading.py.

Kafka: no counterpart; its loaders replay every record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla import native
from ottla.records import scan
from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_POSITION,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    LENGTH_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    RECORD_COUNT_POSITION,
    TRANSACTIONAL_FLAG,
)
from ottla.records.scan import Cursor, cursor_over

if TYPE_CHECKING:
    Newest = dict[bytes, tuple[int, bytes | None]]

_UNUSUAL_FLAGS = TRANSACTIONAL_FLAG | CONTROL_FLAG | COMPRESSION_MASK
_UINT32 = 0xFFFFFFFF
_HEADER = HEADER_BYTES
_OVERHEAD = LOG_OVERHEAD_BYTES
_LENGTH_AT = LENGTH_POSITION
_MAGIC_AT = MAGIC_POSITION
_CRC_AT = CRC_POSITION
_ATTRIBUTES_AT = ATTRIBUTES_POSITION
_DELTA_AT = LAST_OFFSET_DELTA_POSITION
_COUNT_AT = RECORD_COUNT_POSITION


class Walk(NamedTuple):
    """Where a walk over batches stopped."""

    position: int
    """Of the next batch in the data."""
    next_offset: int
    record_count: int
    is_unusual: bool
    """Whether the next batch is complete, and not for this walk; it may be damaged."""


def collect_newest(
    newest: Newest, data: bytes, position: int, first_offset: int, end_offset: int, max_count: int
) -> Walk:
    """Put offset and value of the newest record of each key into newest, in order of offset.

    Records from first_offset on are taken, of batches below end_offset; the walk ends after the
    batch that makes it max_count records, and where no complete batch follows.
    """
    raw = native.bytes_of(data)
    end = len(data)
    next_offset = first_offset
    taken = 0
    is_unusual = False
    cursor = cursor_over(data, 0, end)
    while taken < max_count and end - position >= _HEADER:
        size = _OVERHEAD + native.int_at(raw, position + _LENGTH_AT, 4)
        if size > end - position >= _OVERHEAD:
            break
        base_offset = native.int_at(raw, position, 8)
        if base_offset >= end_offset:
            break
        flags = native.int_at(raw, position + _ATTRIBUTES_AT, 2)
        is_unusual = (
            size < _HEADER
            or raw[position + _MAGIC_AT] != 2
            or flags & _UNUSUAL_FLAGS != 0
            or scan.checksum_of(raw, position + _ATTRIBUTES_AT, position + size, 0)
            != native.int_at(raw, position + _CRC_AT, 4) & _UINT32
        )
        if is_unusual:
            break
        count = native.int_at(raw, position + _COUNT_AT, 4)
        cursor.position = position + _HEADER
        cursor.end = position + size
        if not _collect(newest, raw, cursor, base_offset, first_offset, count):
            is_unusual = True
            break
        taken += count
        last = base_offset + native.int_at(raw, position + _DELTA_AT, 4)
        next_offset = max(next_offset, last + 1)
        position += size
    return Walk(position, next_offset, taken, is_unusual)


def _collect(
    newest: Newest, raw: bytes, cursor: Cursor, base_offset: int, first_offset: int, count: int
) -> bool:
    """Take the records of a batch; False where they are damaged."""
    for _ in range(count):
        size = cursor.varint()
        record_end = cursor.position + size
        if cursor.fault or size < 0 or record_end > cursor.end:
            return False
        cursor.skip(1)
        cursor.varlong()
        offset = base_offset + cursor.varint()
        key_size = cursor.varint()
        key_start = cursor.skip(key_size)
        value_size = cursor.varint()
        value_start = cursor.skip(value_size)
        if cursor.fault or cursor.position > record_end:
            return False
        cursor.position = record_end  # headers are of no interest
        if key_size < 0 or offset < first_offset:
            continue
        key = raw[key_start : key_start + key_size]
        newest.pop(key, None)
        newest[key] = (
            offset,
            raw[value_start : value_start + value_size] if value_size >= 0 else None,
        )
    return cursor.position == cursor.end
