"""The inner loops of log compaction: keys into the offset map, records through the filter.

Compiled by Cython with `key_scan.pxd`, and then without the interpreter's lock; runs uncompiled
too. Ordinary batches (format 2, plain or lz4, no transaction) are read and written here; at any
other the walk stops, and `batch_filter.py` decides.

Hot path: all of it. benchmarks/compaction.py.

Kafka: org.apache.kafka.storage.internals.log.Cleaner.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from ottla import native
from ottla.records import scan
from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    BASE_TIMESTAMP_POSITION,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    LENGTH_POSITION,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    RECORD_COUNT_POSITION,
    TRANSACTIONAL_FLAG,
)
from ottla.records.lz4_frames import Lz4Frames
from ottla.records.scan import Cursor, cursor_over

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.storage.cleaner.offset_map import OffsetMap
    from ottla.types import Buffer

WHOLE = 0
"""The walk stops where no complete batch follows."""
UNUSUAL = 1
"""It stops at a batch that is not for the inner loop."""
DAMAGED = 2
"""It stops at a batch that is not what its header says."""
FULL = 3
"""It stops at a record whose key has no place in the map."""
PARTIAL = 4
"""It stops at a compressed batch of which some records go: see `copy_plain`."""

PLAIN_BYTES = 1 << 20
"""Of the largest batch that is decompressed here."""
MIN_RECORD_BYTES = 7
_WHOLE, _UNUSUAL, _DAMAGED, _FULL, _PARTIAL = WHOLE, UNUSUAL, DAMAGED, FULL, PARTIAL
_GROWTH = 3
"""Times the bytes of records that rewritten ones take at most."""
_RECORD_GROWTH = 14
"""Bytes that a record grows by at most: its timestamp has up to ten, its length up to five."""
_MASK = 0xFFFFFFFFFFFFFFFF
_UINT32 = 0xFFFFFFFF
_UNUSUAL_FLAGS = TRANSACTIONAL_FLAG | CONTROL_FLAG
_CODEC = COMPRESSION_MASK
_LZ4 = 3
_HORIZON = DELETE_HORIZON_FLAG
_APPEND_TIME = LOG_APPEND_TIME_FLAG
_HEADER = HEADER_BYTES
_OVERHEAD = LOG_OVERHEAD_BYTES
_LENGTH_AT = LENGTH_POSITION
_MAGIC_AT = MAGIC_POSITION
_CRC_AT = CRC_POSITION
_ATTRIBUTES_AT = ATTRIBUTES_POSITION
_DELTA_AT = LAST_OFFSET_DELTA_POSITION
_BASE_TIME_AT = BASE_TIMESTAMP_POSITION
_MAX_TIME_AT = MAX_TIMESTAMP_POSITION
_COUNT_AT = RECORD_COUNT_POSITION


class KeyScan:
    """Walks over batches to fill a map, and to copy what the map keeps.

    `position` is where a walk stopped. What is kept is in the first `filled` bytes of `out`, and by
    batch (last offset, largest timestamp, size) in the first `place_count` triples of `places`.
    """

    __slots__ = (
        "_data",
        "_marks",
        "_now_ms",
        "_out",
        "_places",
        "_plain",
        "_plain_cursor",
        "_record_end",
        "_specials",
        "delta",
        "filled", "frames",
        "horizon_ms",
        "is_rewritten",
        "kept",
        "kept_count",
        "key_size",
        "key_start",
        "largest",
        "marks",
        "offset_map",
        "out",
        "place_count",
        "places",
        "plain",
        "position",
        "read_count",
        "special_count",
        "specials",
        "start_offset",
        "time_delta",
        "upper_offset",
        "value_size",
        "wants_horizon",
    )  # fmt: skip

    offset_map: OffsetMap

    def __init__(self, offset_map: OffsetMap, *, now_ms: int, horizon_ms: int) -> None:
        """Tombstones whose horizon is at now_ms or before go; new ones get horizon_ms."""
        self.offset_map = offset_map
        self._now_ms = now_ms
        self.horizon_ms = horizon_ms
        self.position = 0
        self.filled = 0
        self.place_count = 0
        self.read_count = 0
        self.kept_count = 0
        self.kept = 0
        self.largest = -1
        self.is_rewritten = False
        self.start_offset = 0
        self.upper_offset = -1
        self.wants_horizon = False
        self.out = bytearray()
        self.marks = bytearray()
        self.places = array("q")
        self.frames = Lz4Frames(PLAIN_BYTES)
        self._plain_cursor = cursor_over(self.frames.plain, 0, 0)
        self.select(())
        self.make_marks(PLAIN_BYTES // MIN_RECORD_BYTES + 1)
        self.make_room(1 << 16)

    def select(self, specials: Collection[int], upper_offset: int = -1) -> None:
        """Stop at batches with these last offsets, and at the one before upper_offset."""
        self.specials = array("q", sorted(specials) or [-1])
        self._specials = memoryview(self.specials)
        self.special_count = len(self.specials)
        self.upper_offset = upper_offset

    def make_room(self, size: int) -> None:
        """Enlarge the buffers for batches of that many bytes; what they hold is lost."""
        self.make_marks(size // MIN_RECORD_BYTES + 1)
        self.make_output(_GROWTH * size)
        if 3 * (size // _HEADER + 1) > len(self.places):
            self.places = array("q", bytes(24 * (size // _HEADER + 1)))
            self._places = memoryview(self.places)

    def make_marks(self, count: int) -> None:
        """Enlarge the marks for so many records of a batch."""
        if count > len(self.marks):
            self.marks = bytearray(count)
            self._marks = native.bytes_of(self.marks)

    def make_output(self, size: int) -> None:
        """Enlarge the output; what it holds is lost."""
        self.filled = self.place_count = 0
        if size > len(self.out):
            self.out = bytearray(size)
            self._out = native.bytes_of(self.out)

    # Into the map

    def index_batches(self, view: Buffer, position: int, end: int, start_offset: int) -> int:
        """Take the keys of ordinary batches from start_offset on; return why the walk stopped."""
        cursor = cursor_over(view, position, end)
        self.start_offset = start_offset
        state = native.release_interpreter()
        reason = self.index_walk(cursor)
        native.take_interpreter(state)
        return reason

    def index_records(self, view: Buffer, count: int, base_offset: int, start_offset: int) -> int:
        """Take the keys of plain records, which fill view; return WHOLE, FULL or DAMAGED."""
        cursor = cursor_over(view, 0, len(view))
        self.start_offset = start_offset
        state = native.release_interpreter()
        reason = self.index(cursor, count, base_offset)
        native.take_interpreter(state)
        return reason

    def index_walk(self, cursor: Cursor) -> int:
        """Take the keys of batches up to the first that is not ordinary."""
        end = cursor.end
        reason = _WHOLE
        while reason == _WHOLE:
            start = cursor.position
            self.position = start
            size = self.batch_size(cursor, start, end)
            if size <= 0:
                return _WHOLE if size == 0 else _DAMAGED
            if self.is_unusual(cursor, start):
                return _UNUSUAL
            if not self.is_intact(cursor, start, size):
                return _DAMAGED
            base_offset = native.int_at(cursor.data, start, 8)
            count = native.int_at(cursor.data, start + _COUNT_AT, 4)
            where = self.prepare(cursor, start, size) if count else 0
            if where < 0:
                return _UNUSUAL
            if where:
                reason = self.index(self._plain_cursor, count, base_offset)
            elif count:
                reason = self.index(cursor, count, base_offset)
            cursor.end = end
            cursor.position = start + size
            if reason == _WHOLE:
                last = base_offset + native.int_at(cursor.data, start + _DELTA_AT, 4)
                self.offset_map.latest_offset = max(self.offset_map.latest_offset, last)
        return reason

    def index(self, cursor: Cursor, count: int, base_offset: int) -> int:
        """Take the keys of records that fill the cursor's range."""
        for _ in range(count):
            if not self.step(cursor):
                return _DAMAGED
            offset = base_offset + self.delta
            if offset >= self.start_offset:
                if self.key_size >= 0 and not self.offset_map.put(
                    cursor, self.key_start, self.key_size, offset
                ):
                    return _FULL
                self.offset_map.latest_offset = max(self.offset_map.latest_offset, offset)
            self.read_count += 1
            cursor.position = self._record_end
        return _WHOLE if cursor.position == cursor.end else _DAMAGED

    # What both walks read

    def batch_size(self, cursor: Cursor, start: int, end: int) -> int:
        """Return the size of the batch there; 0 when it is not complete, -1 when none begins."""
        if end - start <= _MAGIC_AT:
            return 0
        size = native.int_at(cursor.data, start + _LENGTH_AT, 4) + _OVERHEAD
        if size <= _MAGIC_AT or (cursor.data[start + _MAGIC_AT] >= 2 and size < _HEADER):
            return -1
        return size if size <= end - start else 0

    def is_unusual(self, cursor: Cursor, start: int) -> bool:
        """Whether a batch is of an old format or a slow codec, or part of a transaction."""
        if cursor.data[start + _MAGIC_AT] != 2:
            return True
        attributes = native.int_at(cursor.data, start + _ATTRIBUTES_AT, 2)
        codec = attributes & _CODEC
        return attributes & _UNUSUAL_FLAGS != 0 or codec not in (0, _LZ4)

    def prepare(self, cursor: Cursor, start: int, size: int) -> int:
        """Set the range of a batch's records: 0 in the cursor, 1 in the plain one, -1 in none."""
        cursor.position = start + _HEADER
        cursor.end = start + size
        if native.int_at(cursor.data, start + _ATTRIBUTES_AT, 2) & _CODEC == 0:
            return 0
        filled = self.frames.unpack(cursor, start + _HEADER, start + size)
        if filled < 0:
            return -1
        self._plain_cursor.position = 0
        self._plain_cursor.fault = 0
        self._plain_cursor.end = filled
        return 1

    def is_intact(self, cursor: Cursor, start: int, size: int) -> bool:
        """Whether the checksum is that of the bytes."""
        stored = native.int_at(cursor.data, start + _CRC_AT, 4) & _UINT32
        return scan.checksum_of(cursor.data, start + _ATTRIBUTES_AT, start + size, 0) == stored

    def step(self, cursor: Cursor) -> bool:
        """Read the record at the cursor but for its headers; False unless it is whole."""
        size = cursor.varint()
        self._record_end = cursor.position + size
        if cursor.fault or size < 0 or self._record_end > cursor.end:
            return False
        cursor.skip(1)
        self.time_delta = cursor.varlong()
        self.delta = cursor.varint()
        self.key_size = cursor.varint()
        self.key_start = cursor.skip(self.key_size)
        self.value_size = cursor.varint()
        cursor.skip(self.value_size)
        return not cursor.fault and cursor.position <= self._record_end

    # Through the filter

    def filter_batches(self, view: Buffer, position: int, end: int) -> int:
        """Copy what is kept of ordinary batches; return why the walk stopped.

        The buffers must have room for end less position bytes.
        """
        cursor = cursor_over(view, position, end)
        state = native.release_interpreter()
        reason = self.filter_walk(cursor)
        native.take_interpreter(state)
        return reason

    def filter_records(
        self,
        view: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        has_horizon: bool,  # noqa: FBT001 - as in `scan`
        keeps_all: bool,  # noqa: FBT001 - as above
    ) -> bool:
        """Copy what is kept of plain records, which fill view; False unless they are whole.

        `kept` and `largest` are theirs then, and `is_rewritten` tells whether their timestamps
        count from `horizon_ms` now. With keeps_all all are kept, and get a horizon unless they
        have one: markers.
        """
        cursor = cursor_over(view, 0, len(view))
        if count < 0 or count > len(view) // MIN_RECORD_BYTES:
            return False
        self.make_marks(count)
        state = native.release_interpreter()
        is_whole = self.mark(cursor, count, base_offset, base_timestamp, has_horizon, keeps_all)
        native.take_interpreter(state)
        if is_whole and self.kept:
            self.is_rewritten = self.wants_horizon and not has_horizon
            growth = _RECORD_GROWTH * self.kept if self.is_rewritten else 0
            self.make_output(len(view) + growth)
            cursor.position = 0
            state = native.release_interpreter()
            self.copy_marked(cursor, count, base_timestamp)
            native.take_interpreter(state)
        return is_whole

    def copy_plain(self, count: int, base_timestamp: int) -> None:
        """Put the plain records that are kept of the batch at which a walk stopped into `out`."""
        growth = _RECORD_GROWTH * self.kept if self.is_rewritten else 0
        self.make_output(self._plain_cursor.end + growth)
        self._plain_cursor.position = 0
        state = native.release_interpreter()
        self.copy_marked(self._plain_cursor, count, base_timestamp)
        native.take_interpreter(state)

    def filter_walk(self, cursor: Cursor) -> int:  # noqa: C901 - one loop, in C
        """Filter batches up to the first that is not ordinary."""
        end = cursor.end
        while True:
            start = cursor.position
            self.position = start
            size = self.batch_size(cursor, start, end)
            if size <= 0:
                return _WHOLE if size == 0 else _DAMAGED
            base_offset = native.int_at(cursor.data, start, 8)
            last_offset = base_offset + native.int_at(cursor.data, start + _DELTA_AT, 4)
            if self.is_unusual(cursor, start) or self.is_special(last_offset):
                return _UNUSUAL
            if not self.is_intact(cursor, start, size):
                return _DAMAGED
            attributes = native.int_at(cursor.data, start + _ATTRIBUTES_AT, 2)
            base_timestamp = native.int_at(cursor.data, start + _BASE_TIME_AT, 8)
            count = native.int_at(cursor.data, start + _COUNT_AT, 4)
            has_horizon = attributes & _HORIZON != 0
            where = self.prepare(cursor, start, size) if count else 0
            if where < 0:
                return _UNUSUAL
            self.kept = 0
            if where:
                is_whole = self.mark(
                    self._plain_cursor, count, base_offset, base_timestamp, has_horizon, False
                )
            else:
                is_whole = not count or self.mark(
                    cursor, count, base_offset, base_timestamp, has_horizon, False
                )
            if not is_whole:
                return _DAMAGED
            if self.kept:
                self.is_rewritten = self.wants_horizon and not has_horizon
                if self.kept == count and not self.is_rewritten:
                    native.copy_bytes(self._out, self.filled, cursor.data, start, size)
                    self.add_place(
                        last_offset, native.int_at(cursor.data, start + _MAX_TIME_AT, 8), size
                    )
                elif attributes & _CODEC:
                    return _PARTIAL
                else:
                    self.write_rest(cursor, start, count, base_timestamp)
            cursor.end = end
            cursor.position = start + size

    def is_special(self, last_offset: int) -> bool:
        """Whether the batch that ends there is not for this walk."""
        if last_offset + 1 == self.upper_offset:
            return True
        low = 0
        high = self.special_count
        while low < high:
            middle = (low + high) >> 1
            if self._specials[middle] < last_offset:
                low = middle + 1
            else:
                high = middle
        return low < self.special_count and self._specials[low] == last_offset

    def mark(
        self,
        cursor: Cursor,
        count: int,
        base_offset: int,
        base_timestamp: int,
        has_horizon: bool,  # noqa: FBT001 - as above
        keeps_all: bool,  # noqa: FBT001 - as above
    ) -> bool:
        """Mark the records that are kept; False unless all are whole and fill the range."""
        keeps_tombstones = not has_horizon or self._now_ms < base_timestamp
        fits = True
        has_tombstone = keeps_all
        self.kept = 0
        self.largest = -1
        if count < 0 or count > (cursor.end - cursor.position) // MIN_RECORD_BYTES + 1:
            return False
        for index in range(count):
            if not self.step(cursor) or scan.overflows(base_timestamp, self.time_delta):
                return False
            is_kept = keeps_all or self.is_retained(cursor, base_offset + self.delta,
                                                    keeps_tombstones)  # fmt: skip
            self._marks[index] = is_kept
            if is_kept:
                timestamp = base_timestamp + self.time_delta
                self.kept += 1
                self.largest = max(self.largest, timestamp)
                if self.value_size < 0:
                    has_tombstone = True
                if timestamp < -self.horizon_ms:
                    fits = False
            cursor.position = self._record_end
        self.read_count += count
        self.kept_count += self.kept
        # a time too old for a number of 64 bits from the horizon on: the tombstone stays
        self.wants_horizon = has_tombstone and fits
        return cursor.position == cursor.end

    def is_retained(self, cursor: Cursor, offset: int, keeps_tombstones: bool) -> bool:  # noqa: FBT001 - as above
        """Whether the record that was read stays: the last of its key, and no old tombstone."""
        if offset > self.offset_map.latest_offset:
            return True
        if self.key_size < 0:
            return False
        if self.value_size < 0 and not keeps_tombstones:
            return False
        return offset >= self.offset_map.get(cursor, self.key_start, self.key_size)

    def write_rest(self, cursor: Cursor, start: int, count: int, base_timestamp: int) -> None:
        """Write a batch of the marked records, with the offsets and sequences that it had."""
        begin = self.filled
        native.copy_bytes(self._out, begin, cursor.data, start, _HEADER)
        self.filled = begin + _HEADER
        cursor.position = start + _HEADER
        self.copy_marked(cursor, count, base_timestamp)
        size = self.filled - begin
        attributes = native.int_at(cursor.data, start + _ATTRIBUTES_AT, 2)
        if self.is_rewritten:
            attributes |= _HORIZON
            native.put_at(self._out, begin + _ATTRIBUTES_AT, 2, attributes)
            native.put_at(self._out, begin + _BASE_TIME_AT, 8, self.horizon_ms)
        largest = self.largest
        if attributes & _APPEND_TIME:
            largest = native.int_at(cursor.data, start + _MAX_TIME_AT, 8)
        native.put_at(self._out, begin + _MAX_TIME_AT, 8, largest)
        native.put_at(self._out, begin + _COUNT_AT, 4, self.kept)
        native.put_at(self._out, begin + _LENGTH_AT, 4, size - _OVERHEAD)
        checksum = scan.checksum_of(self._out, begin + _ATTRIBUTES_AT, self.filled, 0)
        native.put_at(self._out, begin + _CRC_AT, 4, checksum)
        last_offset = native.int_at(cursor.data, start, 8) + native.int_at(
            cursor.data, start + _DELTA_AT, 4
        )
        self.filled = begin
        self.add_place(last_offset, largest, size)

    def add_place(self, last_offset: int, timestamp: int, size: int) -> None:
        """Record the place of a batch that was written at `filled`."""
        place = 3 * self.place_count
        self._places[place] = last_offset
        self._places[place + 1] = timestamp
        self._places[place + 2] = size
        self.place_count += 1
        self.filled += size

    def copy_marked(self, cursor: Cursor, count: int, base_timestamp: int) -> None:
        """Append the marked records, which `mark` has read, to the output."""
        for index in range(count):
            start = cursor.position
            size = cursor.varint()
            record_end = cursor.position + size
            if self._marks[index] and self.is_rewritten:
                attributes_at = cursor.position
                cursor.skip(1)
                delta = base_timestamp + cursor.varlong() - self.horizon_ms
                rest = record_end - cursor.position
                self.put_varint(1 + scan.varint_bytes(delta) + rest)
                native.copy_bytes(self._out, self.filled, cursor.data, attributes_at, 1)
                self.filled += 1
                self.put_varint(delta)
                native.copy_bytes(self._out, self.filled, cursor.data, cursor.position, rest)
                self.filled += rest
            elif self._marks[index]:
                native.copy_bytes(self._out, self.filled, cursor.data, start, record_end - start)
                self.filled += record_end - start
            cursor.position = record_end

    def put_varint(self, value: int) -> None:
        """Append the zig-zag varint of a 64-bit value."""
        rest = ((value << 1) ^ (value >> 63)) & _MASK
        while rest > 0x7F:
            self._out[self.filled] = (rest & 0x7F) | 0x80
            self.filled += 1
            rest >>= 7
        self._out[self.filled] = rest
        self.filled += 1

    def take_places(self) -> list[tuple[int, int, int]]:
        """Return the places of the batches in the output."""
        numbers = self.places[: 3 * self.place_count]
        return list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))
