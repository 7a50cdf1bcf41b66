"""Records found in chunks of decompressed bytes, however the chunks cut them.

Whole records of one chunk are returned together. A record across two chunks is joined; one that is
too large for that is walked field by field, so that its key and value are never held.

Kafka: org.apache.kafka.common.record.DefaultRecord.readPartiallyFrom, DefaultRecordBatch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage
from ottla.records.scan import append_varint, describe_fault, slice_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.types import Buffer

_RUN_RECORDS: Final = 4 * 1024
_RUN_BYTES: Final = 1024 * 1024
_JOINED_BYTES: Final = 256 * 1024
_HEADERS_A_CALL: Final = 256
# As in scan.py, whose constants are C's where it is compiled.
_OUT_OF_BYTES: Final = 1
_VARINT_TOO_LONG: Final = 2
_TOO_MANY_HEADERS: Final = 3
_MAX_HEADERS: Final = 1_000_000
_PREMATURE_END: Final = "Incorrect declared batch size, premature EOF reached"
_MORE_RECORDS: Final = "Incorrect declared batch size, records still remaining in file"


class RecordRun(NamedTuple):
    """Whole records, one after another."""

    first_index: int
    record_count: int
    view: memoryview
    start: int
    end: int


class LargeRecord(NamedTuple):
    """Fields of a walked record that rules use."""

    record_index: int
    offset_delta: int
    timestamp_delta: int
    key_size: int
    value_size: int


class RecordStream:
    """The `count` records in chunks; each result is valid until the next one is requested.

    Iterating raises CorruptMessage unless the records fill the chunks. Large records are written
    to `write` with their index as offset delta.
    """

    def __init__(
        self,
        chunks: Iterator[memoryview],
        count: int,
        on_piece: Callable[[int], None],
        write: Callable[[Buffer], None] | None = None,
        *,
        max_run_records: int | None = None,
    ) -> None:
        self._chunks = chunks
        self._count = count
        self._on_piece = on_piece
        self._write = write
        self._max_run_records = max_run_records or _RUN_RECORDS
        self._view = memoryview(b"")
        self._position = 0
        self._index = 0
        self._left = 0
        """Bytes of the large record that are not read yet."""

    def __iter__(self) -> Iterator[RecordRun | LargeRecord]:
        """Return all records."""
        while self._index < self._count:
            view, position, index = self._view, self._position, self._index
            count, end = slice_end(
                view, position, min(self._max_run_records, self._count - index), _RUN_BYTES
            )
            if count:
                self._index, self._position = index + count, end
                yield RecordRun(index, count, view, position, end)
            else:
                self._index += 1
                yield self._crossing_record(index)
            self._on_piece(1)
        while self._position == len(self._view):
            if not self._advance():
                return
        raise CorruptMessage(_MORE_RECORDS)

    def _advance(self) -> bool:
        """Take the next chunk; return whether there is one."""
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self._view, self._position = chunk, 0
        return True

    def _crossing_record(self, index: int) -> RecordRun | LargeRecord:
        raw = bytearray()
        self._left = 5
        size = self._varint(raw)
        if size < 0:
            raise CorruptMessage(describe_fault(_OUT_OF_BYTES, index))
        if size > _JOINED_BYTES:
            return self._large_record(index, size)
        while size:
            part = self._part(size)
            raw += part
            size -= len(part)
        return RecordRun(index, 1, memoryview(raw), 0, len(raw))

    def _large_record(self, index: int, size: int) -> LargeRecord:
        self._left = size
        raw = bytearray([self._byte()])
        timestamp_delta = self._varlong(raw)
        start_end = len(raw)
        offset_delta = self._varint(raw)
        if self._write is not None:
            size -= len(raw)
            del raw[start_end:]
            append_varint(raw, index)
            head = bytearray()
            append_varint(head, size + len(raw))
            self._write(head + raw)
        key_size = self._field()
        value_size = self._field()
        header_count = self._written_varint()
        if header_count < 0:
            raise CorruptMessage(describe_fault(_OUT_OF_BYTES, index))
        if header_count > _MAX_HEADERS:
            raise CorruptMessage(describe_fault(_TOO_MANY_HEADERS, index))
        for number in range(header_count):
            if not number % _HEADERS_A_CALL:
                self._on_piece(number)
            if self._field() < 0:
                raise CorruptMessage(describe_fault(_OUT_OF_BYTES, index))
            self._field()
        if self._left:
            raise CorruptMessage(
                f"Invalid record size: record {index} is longer than its fields by {self._left}"
            )
        return LargeRecord(index, offset_delta, timestamp_delta, key_size, value_size)

    def _field(self) -> int:
        """Step over a size and as many bytes; return the size."""
        size = left = self._written_varint()
        if size > self._left:
            raise CorruptMessage(describe_fault(_OUT_OF_BYTES, self._index - 1))
        while left > 0:
            part = self._part(left)
            left -= len(part)
            self._left -= len(part)
            if self._write is not None:
                self._write(part)
        return size

    def _part(self, size: int) -> memoryview:
        """Return at least one and at most size bytes."""
        while self._position == len(self._view):
            if not self._advance():
                raise CorruptMessage(_PREMATURE_END)
        part = self._view[self._position : self._position + size]
        self._position += len(part)
        return part

    def _byte(self) -> int:
        if not self._left:
            raise CorruptMessage(describe_fault(_OUT_OF_BYTES, self._index - 1))
        self._left -= 1
        return self._part(1)[0]

    def _written_varint(self) -> int:
        raw = bytearray()
        value = self._varint(raw)
        if self._write is not None:
            self._write(raw)
        return value

    def _varint(self, raw: bytearray) -> int:
        return self._number(raw, 4, 0x0F)

    def _varlong(self, raw: bytearray) -> int:
        return self._number(raw, 9, 0x01)

    def _number(self, raw: bytearray, last: int, last_mask: int) -> int:
        """Read a zig-zag value as `Cursor` does; the bytes read are added to raw."""
        value = 0
        for place in range(last + 1):
            byte = self._byte()
            raw.append(byte)
            if place == last:
                if byte & 0x80:
                    raise CorruptMessage(describe_fault(_VARINT_TOO_LONG, self._index - 1))
                byte &= last_mask
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                break
        return (value >> 1) ^ -(value & 1)
