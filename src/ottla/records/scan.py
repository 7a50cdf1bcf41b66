"""The walk over records: decode, validate, encode, columns.

This file runs as it is; with `scan.pxd` Cython compiles it to C, where it is about fifty
times faster. Both must give equal answers (tests/records/test_scan.py runs both), so nothing here
depends on Python's unlimited integers or negative indexes.

Hot path: all of it. benchmarks/records.py.

Kafka: org.apache.kafka.common.record.DefaultRecord, .utils.ByteUtils.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from ottla import native
from ottla.errors import CorruptMessage
from ottla.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.records.record import Headers
    from ottla.types import Buffer

    HeaderInput = Sequence[tuple[str | bytes, bytes | None]]
    RecordInput = tuple[int, Buffer | None, Buffer | None, HeaderInput]

LARGEST_INT64 = (1 << 63) - 1
MIN_INT64 = -LARGEST_INT64 - 1
_MAX_BASE = 1 << 62
_UINT32 = 0xFFFFFFFF

# What `scan_records` finds wrong, as flags.
MALFORMED = 1
NOT_CONSECUTIVE = 2
RULE_BROKEN = 4

# What a cursor found wrong; the walk continues with zeros and the caller checks once a record.
OUT_OF_BYTES = 1
VARINT_TOO_LONG = 2
TOO_MANY_HEADERS = 3

MAX_HEADERS = 1_000_000
"""Limit of one checked record: more do not fit into 2 MiB, and their walk cannot be interrupted."""

NO_HEADERS = b"\x00"


class Cursor:
    """A position in bytes that reads varints and notes, instead of raising, what is wrong."""

    __slots__ = (
        "content_bytes",
        "data",
        "end",
        "fault",
        "largest",
        "largest_index",
        "name_bytes",
        "position",
        "source",
    )

    source: Buffer
    """Kept for its bytes, which are data."""
    data: Buffer
    position: int
    end: int
    fault: int
    name_bytes: int
    content_bytes: int
    largest: int
    largest_index: int

    def varint(self) -> int:
        """Return a zig-zag value of 32 bits; what the fifth byte has beyond them is dropped."""
        if self.position >= self.end:
            self.fault = OUT_OF_BYTES
            return 0
        byte = self.data[self.position]
        self.position += 1
        value = byte & 0x7F
        shift = 7
        while byte & 0x80:
            if self.position >= self.end:
                self.fault = OUT_OF_BYTES
                return 0
            byte = self.data[self.position]
            self.position += 1
            if shift == 28:
                if byte & 0x80:
                    self.fault = VARINT_TOO_LONG
                    return 0
                byte = byte & 0x0F
            bits = byte & 0x7F
            value |= bits << shift
            shift += 7
        return (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        """Return a zig-zag value of 64 bits; what the tenth byte has beyond them is dropped."""
        if self.position >= self.end:
            self.fault = OUT_OF_BYTES
            return 0
        byte = self.data[self.position]
        self.position += 1
        value = byte & 0x7F
        shift = 7
        while byte & 0x80:
            if self.position >= self.end:
                self.fault = OUT_OF_BYTES
                return 0
            byte = self.data[self.position]
            self.position += 1
            if shift == 63:
                if byte & 0x80:
                    self.fault = VARINT_TOO_LONG
                    return 0
                byte = byte & 0x01
            bits = byte & 0x7F
            value |= bits << shift
            shift += 7
        return (value >> 1) ^ -(value & 1)

    def skip(self, size: int) -> int:
        """Step over size bytes (negative: none) and return where they start."""
        start = self.position
        if size > self.end - start:
            self.fault = OUT_OF_BYTES
        elif size > 0:
            self.position = start + size
        return start

    def skip_headers(self, count: int) -> None:
        """Step over that many headers and add up what they hold."""
        if count < 0:
            self.fault = OUT_OF_BYTES
        while count > 0 and not self.fault:
            size = self.varint()
            if size < 0:
                self.fault = OUT_OF_BYTES
                return
            self.skip(size)
            self.name_bytes += size
            size = self.varint()
            self.skip(size)
            if size > 0:
                self.content_bytes += size
            count -= 1

    def skip_bounded_headers(self, count: int) -> None:
        """Step over headers of a record that is checked: not over more than MAX_HEADERS."""
        if count > MAX_HEADERS:
            self.fault = TOO_MANY_HEADERS
        else:
            self.skip_headers(count)


def cursor_over(source: Buffer, position: int, end: int) -> Cursor:
    """Return a cursor at position that goes no further than end; ValueError outside of data.

    A constructor would convert its arguments to Python objects.
    """
    if position < 0 or position > end or end > len(source):
        raise ValueError(f"no bytes {position}-{end} in {len(source)}")
    cursor = Cursor.__new__(Cursor)
    cursor.source = source
    cursor.data = native.bytes_of(source)
    cursor.position = position
    cursor.end = end
    cursor.fault = 0
    cursor.name_bytes = 0
    cursor.content_bytes = 0
    return cursor


def describe_fault(fault: int, index: int) -> str:
    """Return the text for what a cursor found wrong in the record of that index."""
    if fault == VARINT_TOO_LONG:
        return f"Found invalid record structure in record {index}: varint is too long"
    if fault == TOO_MANY_HEADERS:
        return f"Record {index} has more than {MAX_HEADERS} headers"
    return f"Found invalid record structure in record {index}: it is longer than its bytes"


def decode_records(  # noqa: C901 - one loop, in C
    payload: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    log_append_time: int | None,
) -> list[Record]:
    """Return the records of a plain payload; CorruptMessage when they are not `count` whole ones.

    With log_append_time (ms) all records have that timestamp.
    """
    plain = bytes(payload)  # keys and values are cut out of bytes, a pointer when compiled
    raw = plain
    end = len(plain)
    if count < 0:
        raise CorruptMessage(f"Found invalid record count {count} in magic v2 batch")
    if base_offset > _MAX_BASE or base_offset < -_MAX_BASE:
        raise CorruptMessage(f"Found invalid base offset {base_offset} in magic v2 batch")
    if count > end // 7 + 1:  # a record takes seven bytes at least
        raise CorruptMessage("Incorrect declared batch size, premature EOF reached")
    records: list[Record] = []
    cursor = cursor_over(plain, 0, end)
    new = tuple.__new__
    has_append_time = log_append_time is not None
    append_time = 0 if log_append_time is None else log_append_time
    for index in range(count):
        if cursor.position == end:
            raise CorruptMessage("Incorrect declared batch size, premature EOF reached")
        size = cursor.varint()
        record_end = cursor.position + size
        if cursor.fault or size < 0 or record_end > end:
            raise CorruptMessage(describe_fault(cursor.fault, index))
        cursor.skip(1)  # attributes: none are defined
        timestamp_delta = cursor.varlong()
        offset_delta = cursor.varint()
        key_size = cursor.varint()
        key_start = cursor.skip(key_size)
        value_size = cursor.varint()
        value_start = cursor.skip(value_size)
        header_count = cursor.varint()
        if cursor.fault or header_count < 0:
            raise CorruptMessage(describe_fault(cursor.fault, index))
        headers: Headers = ()
        if header_count:
            headers = decode_headers(cursor, raw, header_count)
        if cursor.fault or cursor.position != record_end:
            raise CorruptMessage(
                f"Invalid record size: expected to read {size} bytes in record payload, "
                f"but instead read {cursor.position - record_end + size}"
            )
        if overflows(base_timestamp, timestamp_delta):
            raise CorruptMessage(f"Found an invalid timestamp in record {index}")
        timestamp = append_time if has_append_time else base_timestamp + timestamp_delta
        key = raw[key_start : key_start + key_size] if key_size >= 0 else None
        value = raw[value_start : value_start + value_size] if value_size >= 0 else None
        # the named tuple's own constructor is a Python function
        records.append(new(Record, (base_offset + offset_delta, timestamp, key, value, headers)))
    if cursor.position != end:
        raise CorruptMessage("Incorrect declared batch size, records still remaining in file")
    return records


def scan_records(  # noqa: PLR0913, PLR0917 - one loop, in C, and keywords are slow
    data: Buffer,
    position: int,
    end: int,
    count: int,
    base_timestamp: int,
    earliest: int,
    latest: int,
    requires_keys: bool,  # noqa: FBT001 - keywords cost half of the walk over a small batch
    first_index: int = 0,
) -> tuple[int, int, int]:
    """Walk `count` plain records between position and end, which they must fill.

    Their offset deltas should count from first_index on: more than 0 for a slice of a batch.

    Returns flags of what is wrong (0: nothing; MALFORMED, NOT_CONSECUTIVE, RULE_BROKEN), the
    largest timestamp (ms, at least -1) and the index of the first record that has it. A rule is
    broken by a timestamp other than -1 outside earliest…latest, and by a missing key where keys
    are required.
    """
    cursor = cursor_over(data, position, end)
    flags = walk_records(
        cursor, count, base_timestamp, earliest, latest, requires_keys, first_index
    )
    return flags, cursor.largest, cursor.largest_index


def walk_records(
    cursor: Cursor,
    count: int,
    base_timestamp: int,
    earliest: int,
    latest: int,
    requires_keys: bool,  # noqa: FBT001 - as above
    first_index: int,
) -> int:
    """Walk over records as `scan_records`; largest timestamp and its index are left in cursor."""
    flags = 0
    largest = -1
    cursor.largest = largest
    cursor.largest_index = -1
    end = cursor.end
    if count < 0 or count > (end - cursor.position) // 7 + 1:
        return MALFORMED
    for index in range(count):
        size = cursor.varint()
        record_end = cursor.position + size
        if cursor.fault or size < 0 or record_end > end:
            return MALFORMED
        cursor.skip(1)
        timestamp_delta = cursor.varlong()
        if cursor.varint() != first_index + index:
            flags |= NOT_CONSECUTIVE
        key_size = cursor.varint()
        cursor.skip(key_size)
        cursor.skip(cursor.varint())
        cursor.skip_bounded_headers(cursor.varint())
        if cursor.fault or cursor.position != record_end:
            return MALFORMED
        if overflows(base_timestamp, timestamp_delta):
            return MALFORMED
        timestamp = base_timestamp + timestamp_delta
        if timestamp > largest:
            largest = timestamp
            cursor.largest = largest
            cursor.largest_index = index
        if (timestamp < earliest or timestamp > latest) and timestamp != -1:
            flags |= RULE_BROKEN
        if requires_keys and key_size < 0:
            flags |= RULE_BROKEN
    return flags if cursor.position == end else MALFORMED


def slice_end(data: Buffer, position: int, count: int, max_bytes: int) -> tuple[int, int]:
    """Step over records by their lengths alone: at most `count`, within max_bytes but at least one.

    Returns their number and where the next one starts; 0 where the first record is not complete.
    """
    cursor = cursor_over(data, position, len(data))
    stop = position
    for index in range(count):
        size = cursor.varint()
        record_end = cursor.position + size
        if cursor.fault or size < 0 or record_end > cursor.end:
            return index, stop
        if index and record_end - position > max_bytes:
            return index, stop
        stop = record_end
        cursor.position = record_end
    return count, stop


def outline_records(
    data: Buffer, position: int, end: int, first_index: int, count: int
) -> list[tuple[int, int, int, int]]:
    """Return offset delta, timestamp delta, sizes of key and value of records.

    A missing key or value has a negative size. The records must fill position…end; CorruptMessage
    names, counted from first_index, the one that is broken.
    """
    if count < 0 or count > (end - position) // 7 + 1:
        raise CorruptMessage("Incorrect declared batch size, premature EOF reached")
    found: list[tuple[int, int, int, int]] = []
    cursor = cursor_over(data, position, end)
    for index in range(count):
        size = cursor.varint()
        record_end = cursor.position + size
        if cursor.fault or size < 0 or record_end > end:
            raise CorruptMessage(describe_fault(cursor.fault, first_index + index))
        cursor.skip(1)
        timestamp_delta = cursor.varlong()
        offset_delta = cursor.varint()
        key_size = cursor.varint()
        cursor.skip(key_size)
        value_size = cursor.varint()
        cursor.skip(value_size)
        cursor.skip_bounded_headers(cursor.varint())
        if cursor.fault or cursor.position != record_end:
            raise CorruptMessage(describe_fault(cursor.fault, first_index + index))
        found.append((offset_delta, timestamp_delta, key_size, value_size))
    if cursor.position != end:
        raise CorruptMessage("Incorrect declared batch size, records still remaining in file")
    return found


def append_renumbered(
    out: bytearray, data: Buffer, position: int, first_index: int, count: int
) -> int:
    """Append `count` whole records with offset deltas from first_index on, else as they are.

    Returns where the next one starts. What was scanned before is not checked again.
    """
    cursor = cursor_over(data, position, len(data))
    for index in range(count):
        size = cursor.varint()
        start = cursor.position
        record_end = start + size
        cursor.skip(1)
        cursor.varlong()
        times_end = cursor.position
        cursor.varint()
        rest = cursor.position
        if cursor.fault or record_end < rest or record_end > cursor.end:
            raise CorruptMessage(describe_fault(cursor.fault, first_index + index))
        delta = first_index + index
        append_varint(out, times_end - start + varint_bytes(delta) + record_end - rest)
        out += data[start:times_end]
        append_varint(out, delta)
        out += data[rest:record_end]
        cursor.position = record_end
    return cursor.position


def overflows(base: int, delta: int) -> bool:
    """Whether a timestamp exceeds 64 bits, where Kafka wraps around."""
    if delta >= 0:
        return base > LARGEST_INT64 - delta
    return base < MIN_INT64 - delta


def decode_headers(cursor: Cursor, raw: bytes, count: int) -> Headers:
    """Read that many headers; stops early with the cursor's fault set."""
    headers: list[tuple[str, bytes | None]] = []
    if count > (cursor.end - cursor.position) // 2:
        cursor.fault = OUT_OF_BYTES
        return ()
    for _ in range(count):
        key_size = cursor.varint()
        key_start = cursor.skip(key_size)
        value_size = cursor.varint()
        value_start = cursor.skip(value_size)
        if key_size < 0:
            cursor.fault = OUT_OF_BYTES
        if cursor.fault:
            return ()
        value = None
        if value_size >= 0:
            value = raw[value_start : value_start + value_size]
        name = raw[key_start : key_start + key_size].decode("utf-8", "replace")
        headers.append((name, value))
    return tuple(headers)


def varint_bytes(value: int) -> int:
    """Return how many bytes the zig-zag varint of a 64-bit value takes."""
    rest = (value << 1) ^ (value >> 63)
    size = 1
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size


def append_varint(out: bytearray, value: int) -> None:
    """Append the zig-zag varint of a 64-bit value."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)


def header_bytes(headers: HeaderInput) -> bytes:
    """Return the headers of a record, with their count, as they stand in it."""
    out = bytearray()
    append_varint(out, len(headers))
    for name, value in headers:
        raw = name.encode() if isinstance(name, str) else name
        append_varint(out, len(raw))
        out += raw
        if value is None:
            append_varint(out, -1)
        else:
            append_varint(out, len(value))
            out += value
    return bytes(out)


def record_bytes(
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Buffer,
) -> int:
    """Return the bytes of a record without its length; headers as `header_bytes` made them."""
    key_size = -1 if key is None else len(key)
    value_size = -1 if value is None else len(value)
    size = 1 + varint_bytes(timestamp_delta) + varint_bytes(offset_delta) + len(headers)
    size += varint_bytes(key_size) + varint_bytes(value_size)
    if key_size > 0:
        size += key_size
    if value_size > 0:
        size += value_size
    return size


def append_record(
    out: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Buffer,
    limit: int = LARGEST_INT64,
) -> bool:
    """Append one record; headers as `header_bytes` made them, a zero byte for none.

    False, and nothing is appended, when out would become longer than limit.
    """
    size = record_bytes(timestamp_delta, offset_delta, key, value, headers)
    if len(out) + varint_bytes(size) + size > limit:
        return False
    append_varint(out, size)
    out.append(0)
    append_varint(out, timestamp_delta)
    append_varint(out, offset_delta)
    if key is None:
        out.append(1)
    else:
        append_varint(out, len(key))
        out += key
    if value is None:
        out.append(1)
    else:
        append_varint(out, len(value))
        out += value
    out += headers
    return True


def append_records(out: bytearray, records: Iterable[RecordInput], base_timestamp: int) -> int:
    """Append (timestamp, key, value, headers), offset deltas from 0 on; return the latest time.

    -1 when there are none.
    """
    largest = -1
    for index, (timestamp, key, value, headers) in enumerate(records):
        if index == 0 or timestamp > largest:
            largest = timestamp
        encoded = header_bytes(headers) if headers else NO_HEADERS
        append_record(out, timestamp - base_timestamp, index, key, value, encoded)
    return largest


def crc32c_tables() -> array[int]:
    """Return the eight tables of 256 words that `crc32c` steps with, one after the other."""
    words = array("I", bytes(8 * 256 * 4))
    for index in range(256):
        word = index
        for _ in range(8):
            word = (word >> 1) ^ 0x82F63B78 if word & 1 else word >> 1
        words[index] = word
    for index in range(256, 8 * 256):
        word = words[index - 256]
        words[index] = (word >> 8) ^ words[word & 0xFF]
    return words


CRC32C_TABLES = crc32c_tables()


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the CRC-32C of data, continuing from value: for platforms without a wheel that has it.

    Eight bytes a step (Intel's slicing-by-8).
    """
    return checksum_of(native.bytes_of(data), 0, len(data), value)


def checksum_of(data: Any, position: int, end: int, value: int) -> int:
    """Return the CRC-32C of the bytes from position to end, continuing from value."""
    tables = CRC32C_TABLES
    crc = value ^ _UINT32
    if native.has_crc32c():
        return native.crc32c(data, position, end, crc) ^ _UINT32
    while position + 8 <= end:
        crc = (
            tables[0x700 | ((crc ^ data[position]) & 0xFF)]
            ^ tables[0x600 | (((crc >> 8) ^ data[position + 1]) & 0xFF)]
            ^ tables[0x500 | (((crc >> 16) ^ data[position + 2]) & 0xFF)]
            ^ tables[0x400 | (((crc >> 24) ^ data[position + 3]) & 0xFF)]
            ^ tables[0x300 | data[position + 4]]
            ^ tables[0x200 | data[position + 5]]
            ^ tables[0x100 | data[position + 6]]
            ^ tables[data[position + 7]]
        )
        position += 8
    while position < end:
        crc = (crc >> 8) ^ tables[(crc ^ data[position]) & 0xFF]
        position += 1
    return crc ^ _UINT32
