"""Encodes Arrow batches as record batches and sends them: the work of a writing task.

Kafka: org.apache.spark.sql.kafka010.{KafkaWriteTask, KafkaWriter.validateQuery, KafkaRowWriter},
org.apache.kafka.clients.producer.internals.BuiltInPartitioner. Hot path: benchmarks/spark.py.
"""

from __future__ import annotations

import time
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.errors import ErrorCode, KafkaError
from ottla.records.columns import InputColumn, InputHeaders, encode_columns
from ottla.records.compression import Compression
from ottla.spark.sending import BatchSender
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from pyspark.sql.types import StructType

    from ottla.spark.decision import Participant
    from ottla.spark.options import WriteOptions
    from ottla.spark.sending import TaskTransaction


_MULTIPLIER = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)


def murmur2_column(data: NDArray[np.uint8], offsets: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the hash of data[offsets[i]:offsets[i+1]] for every i.

    Rows are ordered by descending length, so that step k processes all keys with a k-th word.
    """
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    words = lengths >> 2
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    value = _SEED ^ lengths.astype(np.uint32)
    longest = int(words[0]) if len(words) else 0
    # the number of rows with more than k words, for every k
    counts = len(words) - np.searchsorted(words[::-1], np.arange(longest), side="right")
    with np.errstate(over="ignore"):
        for step in range(longest):
            count = int(counts[step])
            part = _word(padded, starts[:count] + 4 * step) * _MULTIPLIER
            part = (part ^ (part >> np.uint32(24))) * _MULTIPLIER
            value[:count] = value[:count] * _MULTIPLIER ^ part
        value = _mix_tail(value, padded, starts + 4 * words, lengths & 3)
        value = (value ^ (value >> np.uint32(13))) * _MULTIPLIER
    value ^= value >> np.uint32(15)
    result = np.empty_like(value)
    result[order] = value
    return result


def _word(data: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.uint32]:
    word = data[at].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _mix_tail(
    value: NDArray[np.uint32],
    data: NDArray[np.uint8],
    at: NDArray[np.int64],
    left: NDArray[np.int64],
) -> NDArray[np.uint32]:
    """Mix in the one to three bytes after the last whole word."""
    mask = ((np.int64(1) << (8 * left)) - 1).astype(np.uint32)
    mixed: NDArray[np.uint32] = (value ^ (_word(data, at) & mask)) * _MULTIPLIER
    return np.where(left > 0, mixed, value)


def partitions_for_keys(
    data: NDArray[np.uint8], offsets: NDArray[Any], count: int
) -> NDArray[np.int32]:
    """Return the partition among count that Kafka's clients choose for each key."""
    positive = murmur2_column(data, offsets) & np.uint32(0x7FFFFFFF)
    return (positive % np.uint32(count)).astype(np.int32)


STATE_DIGEST = "__ottla_state_digest"
"""The column of rows that are no records: digests of what stages have changed in their state."""
SINK_COLUMNS = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
    STATE_DIGEST: ("bigint",),
}


class FrameColumns(NamedTuple):
    """The index of each column in the frame, None if it is missing."""

    value: int
    key: int | None
    topic: int | None
    partition: int | None
    headers: int | None
    timestamp: int | None
    state_digest: int | None = None


def find_columns(schema: StructType, topic: str | None) -> FrameColumns:
    """Return the column indexes; KafkaError(INVALID_CONFIG) for missing or mistyped columns."""
    by_name = {field.name.lower(): index for index, field in enumerate(schema.fields)}
    found = {name: by_name.get(name.lower()) for name in SINK_COLUMNS}
    for name, index in found.items():
        if index is not None:
            _check_type(name, _type_name(schema.fields[index].dataType))
    value = found.pop("value")
    if value is None:
        unused = [field.name for field in schema.fields if field.name.lower() not in SINK_COLUMNS]
        near = get_close_matches("value", unused, n=1)
        hint = f"; rename {near[0]!r}?" if near else ""
        raise _invalid(
            "the frame has no column 'value' (string or binary)"
            + (hint or "; for several columns write to_json(struct('*')) AS value")
        )
    if topic is None and found["topic"] is None:
        raise _invalid("no topic: give option topic, or a column 'topic'")
    digest = found.pop(STATE_DIGEST)
    return FrameColumns(value=value, state_digest=digest, **found)


def _type_name(data_type: Any) -> str:
    text: str = data_type.simpleString()
    return text


def _check_type(name: str, given: str) -> None:
    if name == "timestamp" and given == "timestamp_ntz":
        raise _invalid(
            "column 'timestamp' is timestamp_ntz, which names no instant without a time zone; "
            "write cast(timestamp AS timestamp) AS timestamp, which takes the session's"
        )
    if given not in SINK_COLUMNS[name]:
        raise _invalid(f"column {name!r} is {given}; it must be {' or '.join(SINK_COLUMNS[name])}")


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)


_DIGESTS: Final = 1 << 64
C = TypeVar("C", InputColumn | None, InputHeaders | None)


class Inputs(NamedTuple):
    """Rows of one topic, as input of the encoder."""

    keys: InputColumn | None
    values: InputColumn | None
    headers: InputHeaders | None
    timestamps: NDArray[np.int64]
    """ms since the epoch."""


class Written(NamedTuple):
    """What a task has sent."""

    records: int
    participant: Participant | None
    has_timeout: bool
    """Whether the transaction is aborted after a time, decided or not."""
    state_digest: int | None = None
    """Of what the stages have changed in their state whose digests the task was sent."""


class FrameWriter:
    """Writes the frames of one task."""

    def __init__(
        self,
        options: WriteOptions,
        columns: FrameColumns,
        task_id: int,
        transaction: TaskTransaction | None = None,
    ) -> None:
        """Write at least once without a transaction."""
        self._is_transactional = transaction is not None
        self._options = options
        self._columns = columns
        self._sender = BatchSender(options, transaction)
        self._compression = Compression.from_name(options.compression)
        self._next_for_null_keys = task_id
        self._state_digest: int | None = None

    def write(self, frames: Iterator[pa.RecordBatch]) -> Written:
        """Send every row and wait until all are acknowledged; the transaction stays open."""
        sender = self._sender
        try:
            self._write_all(frames)
        except BaseException:
            sender.abort_transaction()
            raise
        finally:
            sender.close()
        return Written(
            sender.records_sent, sender.participant, sender.has_timeout, self._state_digest
        )

    def _write_all(self, frames: Iterator[pa.RecordBatch]) -> None:
        has_begun = not self._is_transactional
        for given in frames:
            frame, digest = without_digests(given, self._columns)
            self._state_digest = sum_of_digests((self._state_digest, digest))
            if not frame.num_rows:
                continue
            if not has_begun:
                has_begun = True
                self._sender.begin_transaction()
            self._write_frame(frame)
        self._sender.flush()

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
        """Sort the rows of one topic by partition and send each partition's rows."""
        places = self._choose_partitions(topic, frame)
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        frame = frame if bool((places == ordered).all()) else frame.take(pa.array(order))
        columns = self._input_columns(frame)
        edges = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
        for start, end in pairwise(edges):
            partition = TopicPartition(topic, int(ordered[start]))
            self._write_run(partition, columns, start, end)

    def _choose_partitions(self, topic: str, frame: pa.RecordBatch) -> NDArray[np.int32]:
        count = self._sender.partition_count(topic)
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
                    f"column 'partition' contains {wrong}; topic {topic!r} has 0 to {count - 1}",
                )
        return places

    def _input_columns(self, frame: pa.RecordBatch) -> Inputs:
        found = self._columns
        return Inputs(
            keys=None if found.key is None else input_column(binary(frame.column(found.key))),
            values=input_column(binary(frame.column(found.value))),
            headers=None if found.headers is None else input_headers(frame.column(found.headers)),
            timestamps=self._timestamps(frame),
        )

    def _timestamps(self, frame: pa.RecordBatch) -> NDArray[np.int64]:
        now_ms = time.time_ns() // 1_000_000
        if self._columns.timestamp is None:
            return np.full(frame.num_rows, now_ms, np.int64)
        micros = frame.column(self._columns.timestamp).cast(pa.timestamp("us")).cast(pa.int64())
        times = np.asarray(micros.fill_null(now_ms * 1000), np.int64) // 1000
        if times.min() < 0:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"column 'timestamp': {int(times.min())} ms; it should be null or not before 1970",
            )
        return times

    def _write_run(self, partition: TopicPartition, columns: Inputs, start: int, end: int) -> None:
        sender = self._sender
        batches = encode_columns(
            end - start,
            timestamps=columns.timestamps[start:end].data,
            keys=_from_row(columns.keys, start),
            values=_from_row(columns.values, start),
            headers=_from_row(columns.headers, start),
            limit_bytes=sender.batch_bytes(partition.topic),
            compression=self._compression,
            level=self._options.compression_level,
        )
        for batch in batches:
            sender.send(partition, batch)


def without_digests(
    frame: pa.RecordBatch, columns: FrameColumns
) -> tuple[pa.RecordBatch, int | None]:
    """Return the rows that are records, and the sum of the digests in the others."""
    if columns.state_digest is None:
        return frame, None
    digests = frame.column(columns.state_digest)
    if digests.null_count == frame.num_rows:
        return frame, 0
    return frame.filter(digests.is_null()), sum_of_digests(digests.drop_null().to_pylist()) or 0


def sum_of_digests(digests: Iterable[int | None]) -> int | None:
    """Return one digest for several, in any order; None for none."""
    known = [digest for digest in digests if digest is not None]
    return sum(known) % _DIGESTS if known else None


def _from_row(column: C, start: int) -> C:
    """Return a column that starts `start` rows later."""
    return column if column is None else column._replace(first=column.first + start)


def input_column(column: pa.Array) -> InputColumn:
    """Return a binary column's buffers."""
    validity, offsets, data = column.buffers()
    return InputColumn(
        data=memoryview(b"" if data is None else data),
        offsets=memoryview(offsets),
        validity=memoryview(validity) if column.null_count else None,
        first=column.offset,
    )


def input_headers(column: pa.Array) -> InputHeaders:
    """Return the buffers of a header column; KafkaError(INVALID_CONFIG) for a nameless header."""
    entries = column.values
    names, contents = entries.flatten()
    if names.null_count:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "column 'headers': a header has no key")
    validity, offsets = column.buffers()[:2]
    return InputHeaders(
        offsets=memoryview(offsets),
        names=input_column(names.cast(pa.binary())),
        contents=input_column(binary(contents)),
        validity=memoryview(validity) if column.null_count else None,
        first=column.offset,
    )


def binary(column: pa.Array) -> pa.Array:
    """Return a string or binary column as binary with 32-bit offsets."""
    return column if column.type == pa.binary() else column.cast(pa.binary())


def valid_rows(column: pa.Array) -> NDArray[np.bool_]:
    """Return which rows are not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return np.asarray(column.is_valid())


def data_and_offsets(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return the bytes of a binary column, and the offsets of its rows."""
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1]
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return data, offsets
