"""Converts between records and Arrow columns in both directions, without an object per record.

Compiled by Cython in the same way as `scan.py` (`column_scan.pxd` has the types); also runs
uncompiled. `columns.py` is the entry point.

Hot path: all of it. benchmarks/records.py.

Kafka: none; Spark's KafkaRecordToRowConverter has the same columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records.scan import Cursor, cursor_over, overflows, varint_bytes

if TYPE_CHECKING:
    from ottla.types import Buffer


def measure_records(data: Buffer, count: int, base_timestamp: int, totals: memoryview[int]) -> bool:
    """Add the sizes of `count` uncompressed records to totals; False unless they fill data exactly.

    totals holds the bytes of keys, values, header names and header values, then the header count.
    """
    end = len(data)
    if count < 0 or count > end // 7 + 1:
        return False
    cursor = cursor_over(data, 0, end)
    for _ in range(count):
        size = cursor.varint()
        record_end = cursor.position + size
        if cursor.fault or size < 0 or record_end > end:
            return False
        cursor.skip(1)
        if overflows(base_timestamp, cursor.varlong()):
            return False
        cursor.varint()
        size = cursor.varint()
        cursor.skip(size)
        if size > 0:
            totals[0] += size
        size = cursor.varint()
        cursor.skip(size)
        if size > 0:
            totals[1] += size
        header_count = cursor.varint()
        cursor.skip_headers(header_count)
        if cursor.fault or cursor.position != record_end:
            return False
        totals[4] += header_count
    totals[2] += cursor.name_bytes
    totals[3] += cursor.content_bytes
    return cursor.position == end


class BinarySink:
    """An Arrow binary column that is being written: validity bits, 32-bit offsets, data."""

    __slots__ = ("data", "filled", "nulls", "offsets", "rows", "validity")

    def __init__(
        self, validity: memoryview[int], offsets: memoryview[int], data: memoryview[int]
    ) -> None:
        self.validity = validity
        self.offsets = offsets
        self.data = data
        self.filled = 0
        self.rows = 0
        self.nulls = 0

    def append(self, source: Cursor, start: int, size: int) -> None:
        """Add a row of size bytes at start of the cursor's data; negative: null."""
        row = self.rows
        filled = self.filled
        for index in range(size):
            self.data[filled + index] = source.data[start + index]
        if size >= 0:
            self.validity[row >> 3] |= 1 << (row & 7)
            filled += size
        else:
            self.nulls += 1
        self.filled = filled
        self.rows = row + 1
        self.offsets[row + 1] = filled


class ColumnSink:
    """The columns of records that are being written; `rows` counts them.

    A sink that is None is a column that was not requested. `measure_records` has determined all
    sizes.
    """

    __slots__ = (
        "contents",
        "header_lists",
        "header_validity",
        "keys",
        "names",
        "offsets",
        "rows",
        "timestamp_types",
        "timestamps",
        "values",
        "with_headers",
        "with_keys",
        "with_values",
    )

    def __init__(
        self,
        fixed: tuple[memoryview[int], memoryview[int], memoryview[int]],
        keys: BinarySink | None,
        values: BinarySink | None,
        headers: tuple[memoryview[int], memoryview[int], BinarySink, BinarySink] | None,
    ) -> None:
        self.offsets, self.timestamps, self.timestamp_types = fixed
        self.with_keys = keys is not None
        if keys is not None:
            self.keys = keys
        self.with_values = values is not None
        if values is not None:
            self.values = values
        self.with_headers = headers is not None
        if headers is not None:
            self.header_validity, self.header_lists, self.names, self.contents = headers
        self.rows = 0

    def fill(
        self,
        data: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        log_append_time: int | None,
        first_offset: int,
        end_offset: int,
    ) -> None:
        """Add the measured records with first_offset <= offset < end_offset."""
        cursor = cursor_over(data, 0, len(data))
        has_append_time = log_append_time is not None
        append_time = 0 if log_append_time is None else log_append_time
        for _ in range(count):
            size = cursor.varint()
            record_end = cursor.position + size
            cursor.skip(1)
            timestamp_delta = cursor.varlong()
            offset_delta = cursor.varint()
            offset = base_offset + offset_delta
            if offset < first_offset or offset >= end_offset:
                cursor.position = record_end
                continue
            row = self.rows
            self.offsets[row] = offset
            self.timestamps[row] = (
                append_time if has_append_time else base_timestamp + timestamp_delta
            )
            self.timestamp_types[row] = has_append_time
            size = cursor.varint()
            start = cursor.skip(size)
            if self.with_keys:
                self.keys.append(cursor, start, size)
            size = cursor.varint()
            start = cursor.skip(size)
            if self.with_values:
                self.values.append(cursor, start, size)
            if self.with_headers:
                self.fill_headers(cursor, row)
            cursor.position = record_end
            self.rows = row + 1

    def fill_headers(self, cursor: Cursor, row: int) -> None:
        """Add the headers at the cursor; no headers are a null, as in Spark's own source."""
        count = cursor.varint()
        if count > 0:
            self.header_validity[row >> 3] |= 1 << (row & 7)
        for _ in range(count):
            size = cursor.varint()
            start = cursor.skip(size)
            self.names.append(cursor, start, size)
            size = cursor.varint()
            start = cursor.skip(size)
            self.contents.append(cursor, start, size)
        self.header_lists[row + 1] = self.names.rows


class BinarySource:
    """An Arrow binary column that is read: 64-bit or 32-bit offsets, maybe validity bits."""

    __slots__ = (
        "data",
        "first",
        "is_absent",
        "is_wide",
        "narrow",
        "validity",
        "wide",
        "with_validity",
    )

    def __init__(
        self,
        validity: memoryview[int] | None,
        wide: memoryview[int] | None,
        narrow: memoryview[int] | None,
        data: memoryview[int] | None,
        first: int,
    ) -> None:
        self.first = first
        self.is_absent = data is None
        self.with_validity = validity is not None
        if validity is not None:
            self.validity = validity
        if data is not None:
            self.data = data
        # the width that the column does not use gets an empty view
        self.wide = memoryview(b"").cast("q") if wide is None else wide
        self.narrow = memoryview(b"").cast("i") if narrow is None else narrow
        self.is_wide = wide is not None

    def holds(self, rows: int) -> bool:
        """Return whether this many rows can be read."""
        if self.is_absent:
            return True
        if self.with_validity and self.first + rows > 8 * len(self.validity):
            return False
        return self.first + rows < len(self.wide) + len(self.narrow)

    def is_null(self, row: int) -> bool:
        """Return whether the validity bits mark the row as null."""
        place = self.first + row
        return self.with_validity and not (self.validity[place >> 3] >> (place & 7)) & 1

    def start(self, row: int) -> int:
        """Return the position of the row's first byte."""
        if self.is_wide:
            return self.wide[self.first + row]
        return self.narrow[self.first + row]

    def size(self, row: int) -> int:
        """Return the row's size in bytes, -1 for a null, -2 for a row outside the data."""
        if self.is_absent or self.is_null(row):
            return -1
        start = self.start(row)
        size = self.start(row + 1) - start
        if start < 0 or size < 0 or start > len(self.data) - size:
            return -2
        return size


class RecordSink:
    """Bytes of a batch's records that are being written."""

    __slots__ = ("data", "position")

    def __init__(self, data: memoryview[int]) -> None:
        self.data = data
        self.position = 0

    def varint(self, value: int) -> None:
        """Write a zig-zag varint."""
        rest = (value << 1) ^ (value >> 63)
        position = self.position
        while rest > 0x7F:
            self.data[position] = (rest & 0x7F) | 0x80
            position += 1
            rest >>= 7
        self.data[position] = rest
        self.position = position + 1

    def field(self, source: BinarySource, row: int) -> None:
        """Write a row of a column preceded by its length."""
        size = source.size(row)
        self.varint(size)
        if size > 0:
            start = source.start(row)
            position = self.position
            for index in range(size):
                self.data[position + index] = source.data[start + index]
            self.position = position + size


class ColumnSource:
    """The columns that records are built from: keys, values, timestamps (ms) and headers.

    `header_lists` holds the index of each row's first header and the end of the last row's; it is
    empty without a header column.
    """

    __slots__ = (
        "contents",
        "header_lists",
        "header_presence",
        "keys",
        "names",
        "timestamps",
        "values",
        "with_headers",
    )

    def __init__(
        self,
        keys: BinarySource,
        values: BinarySource,
        timestamps: memoryview[int],
        headers: tuple[BinarySource, memoryview[int], BinarySource, BinarySource],
    ) -> None:
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.header_presence, self.header_lists, self.names, self.contents = headers
        self.with_headers = len(self.header_lists) > 0

    def header_count(self, row: int) -> int:
        """Return the number of headers of a row; a null list has none, whatever it spans."""
        if not self.with_headers or self.header_presence.is_null(row):
            return 0
        return self.header_lists[row + 1] - self.header_lists[row]

    def record_bytes(self, row: int, timestamp_delta: int, offset_delta: int) -> int:
        """Return the size of the row's record without its length; -1 for a malformed column."""
        key_size = self.keys.size(row)
        value_size = self.values.size(row)
        count = self.header_count(row)
        if key_size < -1 or value_size < -1 or count < 0:
            return -1
        total = 1 + varint_bytes(timestamp_delta) + varint_bytes(offset_delta)
        total += field_bytes(key_size) + field_bytes(value_size) + varint_bytes(count)
        if count > 0:
            start = self.header_lists[row]
            if start < 0 or not self.names.holds(start + count):
                return -1
            if not self.contents.holds(start + count):
                return -1
            for header in range(start, start + count):
                key_size = self.names.size(header)
                value_size = self.contents.size(header)
                if key_size < 0 or value_size < -1:
                    return -1
                total += field_bytes(key_size) + field_bytes(value_size)
        return total


def field_bytes(size: int) -> int:
    """Return the encoded size of a key or value including its length."""
    if size < 0:
        return 1
    return varint_bytes(size) + size


def write_records(
    data: memoryview[int], source: ColumnSource, first_row: int, end_row: int
) -> tuple[int, int, int]:
    """Write the rows from first_row on as records of one batch, as many as fit in data.

    Returns the number of rows, their bytes and the largest timestamp. If the first row does not
    fit, returns 0 rows and the bytes that it requires; -1 rows report a malformed column. The
    caller has checked that keys, values and timestamps hold end_row rows.
    """
    sink = RecordSink(data)
    capacity = len(data)
    base_timestamp = source.timestamps[first_row]
    largest = base_timestamp
    rows = 0
    for row in range(first_row, end_row):
        timestamp = source.timestamps[row]
        if timestamp < -1 or overflows(timestamp, -base_timestamp):
            return -1, 0, largest
        size = source.record_bytes(row, timestamp - base_timestamp, rows)
        if size < 0:
            return -1, 0, largest
        if sink.position + varint_bytes(size) + size > capacity:
            if not rows:
                return 0, varint_bytes(size) + size, largest
            break
        sink.varint(size)
        sink.varint(0)  # the attributes, a byte of zero
        sink.varint(timestamp - base_timestamp)
        sink.varint(rows)
        sink.field(source.keys, row)
        sink.field(source.values, row)
        header_count = source.header_count(row)
        sink.varint(header_count)
        for index in range(header_count):
            sink.field(source.names, source.header_lists[row] + index)
            sink.field(source.contents, source.header_lists[row] + index)
        largest = max(largest, timestamp)
        rows += 1
    return rows, sink.position, largest
