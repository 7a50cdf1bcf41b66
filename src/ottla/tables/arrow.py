"""Arrow record batches of a partition's batches.

No object is created per record: `records.columns` decodes the bytes into buffers that Arrow uses as
they are, and the constant columns (topic, partition) are filled by numpy.

Kafka: none; org.apache.spark.sql.kafka010.KafkaRecordToRowConverter. Hot path: benchmarks/spark.py,
benchmarks/tables.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.errors import ErrorCode, KafkaError
from ottla.records.columns import parse_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.clients.range_fetcher import Chunk
    from ottla.records.columns import BinaryColumn, Columns, HeaderColumn
    from ottla.types import TopicPartition

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
ARROW_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "timestamp_type": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),
}
FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999
"""The times of the years 1 to 9999 in ms since 1970, which are those of Spark's timestamps."""


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """Return the schema that Spark expects of the columns."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in names])


class Parsed(NamedTuple):
    """A chunk as columns, and the offset after it."""

    batch: pa.RecordBatch | None
    next_offset: int


class ColumnReader:
    """Converts the chunks of one partition into Arrow record batches with the requested columns."""

    def __init__(
        self,
        names: Sequence[str],
        partition: TopicPartition,
        *,
        check_crcs: bool = True,
        null_timestamps: bool = False,
    ) -> None:
        """With `null_timestamps` a timestamp that is none of Spark's is null, else an error."""
        self._null_timestamps = null_timestamps
        self._names = tuple(names)
        self._schema = arrow_schema(names)
        self._partition = partition
        self._check_crcs = check_crcs

    def parse(self, chunk: Chunk, start: int, until: int) -> Iterator[Parsed]:
        """Yield the records with start <= offset < until; CorruptMessage for bad bytes.

        `next_offset` is after the last complete batch, including batches without matching records.
        """
        for columns in parse_columns(
            chunk.records,
            start_offset=start,
            end_offset=until,
            aborted=chunk.aborted or (),
            keys="key" in self._names,
            values="value" in self._names,
            headers="headers" in self._names,
            check_crcs=self._check_crcs,
        ):
            batch = None
            if columns.rows:
                arrays = [self._array(name, columns) for name in self._names]
                batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            yield Parsed(batch, columns.next_offset)

    def first_at(self, chunk: Chunk, start: int, until: int, timestamp_ms: int) -> int | None:
        """Return the offset of the first record of a chunk that is as new as a time."""
        for columns in parse_columns(
            chunk.records, start_offset=start, end_offset=until, keys=False, values=False
        ):
            times = np.frombuffer(columns.timestamps, np.int64, columns.rows)
            rows = np.flatnonzero(times >= timestamp_ms)
            if len(rows):
                return int(np.frombuffer(columns.offsets, np.int64, columns.rows)[rows[0]])
        return None

    def _array(self, name: str, columns: Columns) -> pa.Array:
        rows = columns.rows
        if name == "key":
            assert columns.keys is not None
            return _binary(columns.keys, rows, pa.binary())
        if name == "value":
            assert columns.values is not None
            return _binary(columns.values, rows, pa.binary())
        if name == "headers":
            assert columns.headers is not None
            return _headers(columns.headers, rows)
        if name == "timestamp":
            return self._timestamps(columns)
        if name in ("topic", "partition"):
            return self._constant(name, rows)
        buffer = columns.offsets if name == "offset" else columns.timestamp_types
        return _fixed(buffer, rows, ARROW_TYPES[name])

    def _timestamps(self, columns: Columns) -> pa.Array:
        """Return times in microseconds; KafkaError for one that Spark cannot have.

        A producer may give any number: seconds by another unit are years that have not been, and
        in nanoseconds more than 64 bits of microseconds, of which the lowest would be left.
        """
        rows, kind = columns.rows, ARROW_TYPES["timestamp"]
        times = np.frombuffer(columns.timestamps, np.int64, rows)
        if times.min() >= FIRST_MS and times.max() <= LAST_MS:
            return _fixed(times * 1000, rows, kind)
        wrong = (times < FIRST_MS) | (times > LAST_MS)
        if self._null_timestamps:
            return pa.array(np.where(wrong, 0, times) * 1000, kind, mask=wrong)
        row = int(np.argmax(wrong))
        offset = int(np.frombuffer(columns.offsets, np.int64, rows)[row])
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"{self._partition}: the record at offset {offset} has the timestamp {times[row]}, "
            "which is no time in ms (is it in another unit?); option invalidTimestamps=null reads "
            "null, and columns without timestamp read no times",
        )

    def _constant(self, name: str, count: int) -> pa.Array:
        if name == "partition":
            numbers = np.full(count, self._partition.partition, np.int32)
            return _fixed(numbers, count, pa.int32())
        text = self._partition.topic.encode()
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(text))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text * count)]
        return pa.Array.from_buffers(pa.string(), count, buffers)


def _fixed(buffer: Any, rows: int, kind: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(buffer)])


def _binary(column: BinaryColumn, rows: int, kind: Any) -> pa.Array:
    validity = pa.py_buffer(column.validity) if column.null_count else None
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, column.null_count)


def _headers(column: HeaderColumn, rows: int) -> pa.Array:
    """Return the list column; rows without headers are null, as in the connector."""
    count = column.header_count
    fields = [
        _binary(column.names, count, pa.string()),
        _binary(column.contents, count, pa.binary()),
    ]
    entries = pa.Array.from_buffers(HEADER_TYPE, count, [None], children=fields)
    buffers = [pa.py_buffer(column.validity), pa.py_buffer(column.offsets)]
    return pa.Array.from_buffers(ARROW_TYPES["headers"], rows, buffers, children=[entries])
