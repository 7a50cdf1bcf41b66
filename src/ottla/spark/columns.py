"""Record batches to Arrow columns: what a task yields to Spark.

Kafka: org.apache.spark.sql.kafka010.KafkaRecordToRowConverter. Hot path: benchmarks/spark.py.

No object is made per record: `records.scan` walks the bytes into buffers that Arrow takes as they
are, and the constant columns (topic, partition) are filled by numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.records.batch import TimestampType
from ottla.spark.batches import readable_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.records.record import Record
    from ottla.spark.fetching import Chunk
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
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),
}


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """Return the schema that Spark expects of the columns."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in names])


class Parsed(NamedTuple):
    """A chunk as columns, and where the next one starts."""

    batch: pa.RecordBatch | None
    next_offset: int


class ColumnReader:
    """Turns the chunks of one partition into Arrow record batches with the wanted columns."""

    def __init__(
        self, names: Sequence[str], partition: TopicPartition, *, check_crcs: bool = True
    ) -> None:
        self._schema = arrow_schema(names)
        self._partition = partition
        self._check_crcs = check_crcs

    def parse(self, chunk: Chunk, start: int, until: int) -> Parsed:
        """Return the records with start <= offset < until; CorruptMessage for bad bytes.

        `next_offset` is past the last whole batch, whether it had records to show or not.
        """
        return self._parse_plainly(chunk, start, until)

    def _parse_plainly(self, chunk: Chunk, start: int, until: int) -> Parsed:
        records: list[Record] = []
        types: list[int] = []
        next_offset = start
        for batch, is_readable in readable_batches(chunk):
            if batch.base_offset >= until:
                break
            if self._check_crcs:
                batch.check_crc()
            next_offset = batch.next_offset
            if is_readable:
                found = [one for one in batch.records() if start <= one.offset < until]
                records += found
                appended = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
                types += [int(appended)] * len(found)
        if not records:
            return Parsed(None, next_offset)
        columns: dict[str, Any] = {
            "key": [one.key for one in records],
            "value": [one.value for one in records],
            "offset": [one.offset for one in records],
            "timestamp": [one.timestamp * 1000 for one in records],
            "timestampType": types,
            "headers": [
                [{"key": key, "value": value} for key, value in one.headers] or None
                for one in records
            ],
        }
        arrays = [
            self._constant(field.name, len(records))
            if field.name in ("topic", "partition")
            else pa.array(columns[field.name], field.type)
            for field in self._schema
        ]
        return Parsed(pa.RecordBatch.from_arrays(arrays, schema=self._schema), next_offset)

    def _constant(self, name: str, count: int) -> pa.Array:
        if name == "partition":
            return pa.array(np.full(count, self._partition.partition, np.int32))
        text = self._partition.topic.encode()
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(text))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text * count)]
        return pa.Array.from_buffers(pa.string(), count, buffers)
