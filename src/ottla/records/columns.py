"""Converts record batches to Arrow buffers and back, for bulk readers and writers such as Spark.

Buffers have Arrow's layout (little-endian, validity bits, 32-bit offsets), so that
`pyarrow.Array.from_buffers` takes them without a copy; this module does not need pyarrow. Topic
and partition are equal in all rows of a response, so the caller adds them.

Hot path: a few calls a batch; `column_scan` does the rest. benchmarks/records.py.

Kafka: none; Spark's KafkaRecordToRowConverter and KafkaBatchPartitionReader.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records import column_scan
from ottla.records.batch import HEADER_BYTES, RecordBatch, TimestampType
from ottla.records.batches import iterate_batches
from ottla.records.builder import assemble_batch, attributes_of, encode_batch
from ottla.records.compression import DEFAULT_LIMIT_BYTES, Compression, compress
from ottla.records.control import ControlRecordType, decode_control_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.types import Buffer

CHUNK_BYTES: Final = 16 * 1024 * 1024
_END_OF_TIME: Final = (1 << 63) - 1
_MAX_BASE: Final = 1 << 62
_MAX_OFFSET: Final = (1 << 31) - 1
_KEY_BYTES, _VALUE_BYTES, _NAME_BYTES, _CONTENT_BYTES, _HEADERS = range(5)

assert sys.byteorder == "little", "Arrow buffers require a little-endian machine"


class BinaryColumn(NamedTuple):
    """Arrow `binary`: validity bits, rows + 1 offsets of 32 bits, data."""

    validity: bytearray
    offsets: bytearray
    data: bytearray
    null_count: int


class HeaderColumn(NamedTuple):
    """Arrow `list<struct<key: string, value: binary>>`; rows without headers are null."""

    validity: bytearray
    offsets: bytearray
    names: BinaryColumn
    contents: BinaryColumn
    header_count: int
    """Number of headers in all rows: the length of the struct's two columns."""


class Columns(NamedTuple):
    """Consecutive records of one partition. Buffers may be longer than `rows` requires."""

    rows: int
    offsets: bytearray
    """int64."""
    timestamps: bytearray
    """int64, ms since the epoch."""
    timestamp_types: bytearray
    """int32: 0 CreateTime, 1 LogAppendTime."""
    keys: BinaryColumn | None
    values: BinaryColumn | None
    headers: HeaderColumn | None
    next_offset: int
    """Offset to continue at: after all records read, including omitted ones."""


class AbortedFilter:
    """Identifies the batches of transactions that a fetch response lists as aborted.

    Kafka: org.apache.kafka.clients.consumer.internals.CompletedFetch.
    """

    __slots__ = ("_aborted", "_producers")

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        """Take (producer id, first offset) in any order."""
        self._aborted = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._producers: set[int] = set()

    def drops(self, batch: RecordBatch) -> bool:
        """Return whether the batch is hidden from applications: aborted, or a control batch."""
        if batch.has_producer_id:
            while self._aborted and self._aborted[-1][1] <= batch.last_offset:
                self._producers.add(self._aborted.pop()[0])
            if batch.is_control:
                if self._producers and _is_abort_marker(batch):
                    self._producers.discard(batch.producer_id)
            elif batch.is_transactional and batch.producer_id in self._producers:
                return True
        return batch.is_control


def _is_abort_marker(batch: RecordBatch) -> bool:
    records = batch.records()
    return bool(records) and decode_control_type(records[0].key) == ControlRecordType.ABORT


def parse_columns(  # noqa: PLR0913 - keywords, most of them rarely given
    view: Buffer,
    *,
    start_offset: int = 0,
    end_offset: int = _END_OF_TIME,
    aborted: Sequence[tuple[int, int]] = (),
    keys: bool = True,
    values: bool = True,
    headers: bool = False,
    check_crcs: bool = True,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Columns]:
    """Yield the records with start_offset <= offset < end_offset of a fetch response as columns.

    Control batches and those of aborted transactions ((producer id, first offset) from the
    response) are omitted; a truncated last batch is ignored. A chunk ends after the batch that
    fills chunk_bytes; each batch may decompress to limit_bytes. Raises CorruptMessage, or
    KafkaError INVALID_RECORD for a batch that is too large.
    """
    aborted_filter = AbortedFilter(aborted)
    pending = _PendingChunk(start_offset, end_offset)
    next_offset = -1
    for found in iterate_batches(view, partial_tail=True):
        if found.base_offset >= end_offset:
            next_offset = end_offset  # compaction removed all records up to end_offset
            break
        if check_crcs:
            found.check_crc()
        next_offset = found.next_offset
        if aborted_filter.drops(found) or next_offset <= start_offset or not found.record_count:
            continue
        pending.add(found if found.magic == 2 else _modernize(found), limit_bytes)
        if pending.decompressed_bytes >= chunk_bytes:
            yield pending.columns(next_offset, keys=keys, values=values, headers=headers)
            pending = _PendingChunk(start_offset, end_offset)
            next_offset = -1
    if next_offset >= 0:
        yield pending.columns(next_offset, keys=keys, values=values, headers=headers)


def _modernize(batch: RecordBatch) -> RecordBatch:
    """Convert messages of format 0 or 1 to a batch of format 2 with the same offsets."""
    records = batch.records()
    return RecordBatch(
        encode_batch(
            [record[1:] for record in records],
            base_offset=records[0].offset,
            timestamp_type=TimestampType(max(batch.timestamp_type, 0)),
            log_append_time=batch.max_timestamp,
        )
    )


class _PendingChunk:
    """Batches that were measured but not yet copied to column buffers."""

    __slots__ = ("batches", "decompressed_bytes", "end_offset", "rows", "start_offset", "totals")

    def __init__(self, start_offset: int, end_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.batches: list[tuple[RecordBatch, Buffer]] = []
        self.totals = array("q", bytes(5 * 8))
        self.rows = 0
        self.decompressed_bytes = 0

    def add(self, batch: RecordBatch, limit_bytes: int) -> None:
        """Decompress and measure a batch; raises CorruptMessage if records and header differ."""
        plain = batch.decompressed_payload(limit_bytes)
        count = batch.record_count
        totals = memoryview(self.totals)
        if abs(batch.base_offset) > _MAX_BASE or not column_scan.measure_records(
            plain, count, batch.base_timestamp, totals
        ):
            raise CorruptMessage(
                f"Found invalid record structure in the batch at offset {batch.base_offset}"
            )
        self.batches.append((batch, plain))
        self.rows += count
        self.decompressed_bytes += len(plain)
        if self.decompressed_bytes > _MAX_OFFSET:
            raise KafkaError(ErrorCode.INVALID_RECORD, "A batch is larger than Arrow's offsets")

    def columns(self, next_offset: int, *, keys: bool, values: bool, headers: bool) -> Columns:
        """Allocate the columns' buffers and fill them."""
        rows, totals = self.rows, self.totals
        offsets, timestamps = bytearray(8 * rows), bytearray(8 * rows)
        timestamp_types = bytearray(4 * rows)
        key_column = _BinaryBuffers(rows, totals[_KEY_BYTES]) if keys else None
        value_column = _BinaryBuffers(rows, totals[_VALUE_BYTES]) if values else None
        header_column = _HeaderBuffers(rows, totals) if headers else None
        sink = column_scan.ColumnSink(
            (
                memoryview(offsets).cast("q"),
                memoryview(timestamps).cast("q"),
                memoryview(timestamp_types).cast("i"),
            ),
            None if key_column is None else key_column.sink,
            None if value_column is None else value_column.sink,
            None if header_column is None else header_column.sinks(),
        )
        for batch, plain in self.batches:
            appended = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
            sink.fill(
                plain,
                batch.record_count,
                batch.base_offset,
                batch.base_timestamp,
                batch.max_timestamp if appended else None,
                self.start_offset,
                self.end_offset,
            )
        return Columns(
            sink.rows,
            offsets,
            timestamps,
            timestamp_types,
            None if key_column is None else key_column.column(),
            None if value_column is None else value_column.column(),
            None if header_column is None else header_column.column(),
            min(next_offset, self.end_offset),
        )


class _BinaryBuffers:
    """A binary column's buffers while they are filled."""

    __slots__ = ("data", "offsets", "sink", "validity")

    def __init__(self, rows: int, data_bytes: int) -> None:
        self.validity = bytearray((rows + 7) // 8)
        self.offsets = bytearray(4 * (rows + 1))
        self.data = bytearray(data_bytes)
        self.sink = column_scan.BinarySink(
            memoryview(self.validity),
            memoryview(self.offsets).cast("i"),
            memoryview(self.data),
        )

    def column(self) -> BinaryColumn:
        """Return the column."""
        return BinaryColumn(self.validity, self.offsets, self.data, self.sink.nulls)


class _HeaderBuffers:
    """The header column's buffers while they are filled."""

    __slots__ = ("contents", "names", "offsets", "validity")

    def __init__(self, rows: int, totals: Sequence[int]) -> None:
        self.validity = bytearray((rows + 7) // 8)
        self.offsets = bytearray(4 * (rows + 1))
        self.names = _BinaryBuffers(totals[_HEADERS], totals[_NAME_BYTES])
        self.contents = _BinaryBuffers(totals[_HEADERS], totals[_CONTENT_BYTES])

    def sinks(
        self,
    ) -> tuple[memoryview[int], memoryview[int], column_scan.BinarySink, column_scan.BinarySink]:
        """Return the sinks that the compiled scan writes to."""
        return (
            memoryview(self.validity),
            memoryview(self.offsets).cast("i"),
            self.names.sink,
            self.contents.sink,
        )

    def column(self) -> HeaderColumn:
        """Return the column."""
        return HeaderColumn(
            self.validity,
            self.offsets,
            self.names.column(),
            self.contents.column(),
            self.names.sink.rows,
        )


class InputColumn(NamedTuple):
    """An Arrow binary or string column to encode: offsets of 32 bits, or of 64 when `is_wide`."""

    data: Buffer
    offsets: Buffer
    validity: Buffer | None = None
    first: int = 0
    """The array's offset: index of its first row in the buffers."""
    is_wide: bool = False


class InputHeaders(NamedTuple):
    """An Arrow list of (name, content) to encode; offsets of 32 bits."""

    offsets: Buffer
    names: InputColumn
    contents: InputColumn
    validity: Buffer | None = None
    first: int = 0


def encode_columns(  # noqa: PLR0913 - what a batch header holds
    rows: int,
    *,
    timestamps: Buffer | int,
    keys: InputColumn | None = None,
    values: InputColumn | None = None,
    headers: InputHeaders | None = None,
    limit_bytes: int = 1_000_000,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> Iterator[bytearray]:
    """Yield the rows as batches of at most limit_bytes uncompressed (a single row may exceed it).

    timestamps are int64 (ms), or one number for all rows. With a base_sequence the batches have
    consecutive sequence numbers. Raises KafkaError INVALID_RECORD when a column's offsets exceed
    its data or a timestamp is below -1, ValueError when a column is shorter than rows.
    """
    source = _source(rows, timestamps, keys, values, headers)
    attributes = attributes_of(compression, TimestampType.CREATE_TIME, transactional=transactional)
    times = _times(rows, timestamps)
    plain = bytearray(max(limit_bytes - HEADER_BYTES, 1))
    row = 0
    while row < rows:
        written, size, largest = column_scan.write_records(memoryview(plain), source, row, rows)
        if written < 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"A column is malformed after row {row}")
        if not written:  # one row that is larger than the limit
            one = bytearray(size)
            written, size, largest = column_scan.write_records(
                memoryview(one), source, row, row + 1
            )
            payload = memoryview(one)
        else:
            payload = memoryview(plain)[:size]
        yield assemble_batch(
            compress(compression, payload, level),
            attributes=attributes,
            record_count=written,
            last_offset_delta=written - 1,
            base_timestamp=times[row],
            max_timestamp=largest,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        if base_sequence >= 0:
            base_sequence = (base_sequence + written) & 0x7FFF_FFFF
        row += written


def _times(rows: int, timestamps: Buffer | int) -> memoryview[int]:
    if isinstance(timestamps, int):
        return memoryview(array("q", [timestamps]) * rows)
    return memoryview(timestamps).cast("B").cast("q")


def _source(
    rows: int,
    timestamps: Buffer | int,
    keys: InputColumn | None,
    values: InputColumn | None,
    headers: InputHeaders | None,
) -> column_scan.ColumnSource:
    """Return the columns as input of the compiled scan; raises ValueError for a short column."""
    times = _times(rows, timestamps)
    key_source, value_source = _binary(keys), _binary(values)
    if headers is None:
        lists = memoryview(b"").cast("i")
        presence = names = contents = _binary(None)
    else:
        lists = memoryview(headers.offsets).cast("B").cast("i")[headers.first :]
        presence = column_scan.BinarySource(
            _flat(headers.validity), None, memoryview(headers.offsets).cast("B").cast("i"),
            memoryview(b""), headers.first,
        )  # fmt: skip
        names, contents = _binary(headers.names), _binary(headers.contents)
        if not presence.holds(rows) or len(lists) <= rows:
            raise ValueError(f"the headers have fewer than {rows} rows")
    if len(times) < rows or not key_source.holds(rows) or not value_source.holds(rows):
        raise ValueError(f"a column has fewer than {rows} rows")
    return column_scan.ColumnSource(
        key_source, value_source, times, (presence, lists, names, contents)
    )


def _flat(buffer: Buffer | None) -> memoryview[int] | None:
    return None if buffer is None else memoryview(buffer).cast("B")


def _binary(column: InputColumn | None) -> column_scan.BinarySource:
    if column is None:
        return column_scan.BinarySource(None, None, None, None, 0)
    offsets = memoryview(column.offsets).cast("B")
    return column_scan.BinarySource(
        _flat(column.validity),
        offsets.cast("q") if column.is_wide else None,
        None if column.is_wide else offsets.cast("i"),
        _flat(column.data),
        column.first,
    )
