"""Arrow batches to record batches: what a writing task does with the frames it gets.

Kafka: org.apache.spark.sql.kafka010.KafkaWriteTask. Hot path: benchmarks/spark.py.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.errors import ErrorCode, KafkaError
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from ottla.spark.partitioning import partitions_for_keys
from ottla.spark.sending import Sender
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ottla.spark.options import WriteOptions
    from ottla.spark.rows import FrameColumns

RECORD_OVERHEAD_BYTES = 24
"""What a record takes at most beside key, value and headers, when those are small."""


class Columns(NamedTuple):
    """The columns of rows that all go to one topic, by position in `rows`."""

    key: pa.Array | None
    value: pa.Array
    headers: pa.Array | None
    timestamps_ms: NDArray[np.int64]


class FrameWriter:
    """Writes the frames of one task."""

    def __init__(self, options: WriteOptions, columns: FrameColumns, task_id: int) -> None:
        self._options = options
        self._columns = columns
        self._sender = Sender(options)
        self._compression = Compression.from_name(options.compression)
        self._next_for_null_keys = task_id

    def write(self, frames: Iterator[pa.RecordBatch]) -> int:
        """Send every row and wait until all are acknowledged; return their number."""
        try:
            for frame in frames:
                if frame.num_rows:
                    self._sender.start()
                    self._write_frame(frame)
            self._sender.flush()
        finally:
            self._sender.close()
        return self._sender.records_sent

    def _write_frame(self, frame: pa.RecordBatch) -> None:
        if self._options.topic is not None:
            self._write_rows(self._options.topic, frame)
            return
        assert self._columns.topic is not None
        topics = frame.column(self._columns.topic)
        if topics.null_count:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "a row has no topic: column 'topic' is null, and option topic is not given",
            )
        for name in pc.unique(topics).to_pylist():
            self._write_rows(name, frame.filter(pc.equal(topics, name)))

    def _write_rows(self, topic: str, frame: pa.RecordBatch) -> None:
        places = self._choose_partitions(topic, frame)
        columns = self._take_columns(frame)
        order = np.argsort(places, kind="stable")
        ends = np.flatnonzero(np.diff(places[order])) + 1
        for rows in np.split(order, ends):
            partition = TopicPartition(topic, int(places[rows[0]]))
            self._write_partition(partition, columns, rows)

    def _choose_partitions(self, topic: str, frame: pa.RecordBatch) -> NDArray[np.int32]:
        count = len(self._sender.topic(topic).leaders)
        self._next_for_null_keys = (self._next_for_null_keys + 1) % count
        places = np.full(frame.num_rows, self._next_for_null_keys, np.int32)
        if self._columns.key is not None:
            key = binary(frame.column(self._columns.key))
            places = np.where(
                valid_rows(key), partitions_for_keys(*data_and_offsets(key), count), places
            )
        if self._columns.partition is not None:
            given = frame.column(self._columns.partition)
            chosen = np.asarray(given.fill_null(0), np.int32)
            places = np.where(valid_rows(given), chosen, places)
            if places.min() < 0 or places.max() >= count:
                wrong = int(places.min() if places.min() < 0 else places.max())
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"column 'partition' asks for {wrong}; topic {topic!r} has 0 to {count - 1}",
                )
        return places

    def _take_columns(self, frame: pa.RecordBatch) -> Columns:
        found = self._columns
        return Columns(
            key=None if found.key is None else binary(frame.column(found.key)),
            value=binary(frame.column(found.value)),
            headers=None if found.headers is None else frame.column(found.headers),
            timestamps_ms=self._timestamps(frame),
        )

    def _timestamps(self, frame: pa.RecordBatch) -> NDArray[np.int64]:
        now_ms = time.time_ns() // 1_000_000
        if self._columns.timestamp is None:
            return np.full(frame.num_rows, now_ms, np.int64)
        micros = frame.column(self._columns.timestamp).cast(pa.timestamp("us")).cast(pa.int64())
        return np.asarray(micros.fill_null(now_ms * 1000), np.int64) // 1000

    def _write_partition(
        self, partition: TopicPartition, columns: Columns, rows: NDArray[Any]
    ) -> None:
        indices = pa.array(rows)
        records: list[Any] = list(
            zip(
                columns.timestamps_ms[rows].tolist(),
                _plain(columns.key, indices, len(rows)),
                _plain(columns.value, indices, len(rows)),
                _headers(columns.headers, indices, len(rows)),
                strict=True,
            )
        )
        start, size = 0, 0
        for index, (_, key, value, _) in enumerate(records):
            more = len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES
            if size and size + more > self._options.batch_bytes:
                self._send(partition, records[start:index])
                start, size = index, 0
            size += more
        self._send(partition, records[start:])

    def _send(self, partition: TopicPartition, records: list[Any]) -> None:
        batch = encode_batch(
            records,
            compression=self._compression,
            level=self._options.compression_level,
            producer_id=self._sender.producer_id,
            producer_epoch=self._sender.producer_epoch,
            base_sequence=self._sender.next_sequence(partition, len(records)),
        )
        self._sender.send(partition, batch)


def binary(column: pa.Array) -> pa.Array:
    """Return a string or binary column as binary with 32-bit offsets; no copy where it is one."""
    return column if column.type == pa.binary() else column.cast(pa.binary())


def valid_rows(column: pa.Array) -> NDArray[np.bool_]:
    """Return which rows are not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return np.asarray(column.is_valid())


def data_and_offsets(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return the bytes of a binary column and where each row's begin and end."""
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1]
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return data, offsets


def _plain(column: pa.Array | None, indices: pa.Array, count: int) -> list[bytes | None]:
    if column is None:
        return [None] * count
    values: list[bytes | None] = column.take(indices).to_pylist()
    return values


def _headers(
    column: pa.Array | None, indices: pa.Array, count: int
) -> list[tuple[tuple[str, bytes | None], ...]]:
    if column is None:
        return [()] * count
    return [
        tuple((one["key"] or "", one["value"]) for one in row or ())
        for row in column.take(indices).to_pylist()
    ]
