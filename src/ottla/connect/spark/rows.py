"""Rows of Spark as records of Connect and back, in Spark's Python processes.

Transforms and converters are those of the worker, a record at a time.

Kafka: none; org.apache.kafka.connect.runtime.TransformationChain is applied in the same way.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from ottla.clients.consumer.record_decoder import ConsumerRecord
from ottla.connect import data
from ottla.connect.data import Schema, SchemaType, Struct
from ottla.connect.errors import ConnectException, DataException
from ottla.connect.plugins import Plugins
from ottla.connect.records import SinkRecord, SourceRecord
from ottla.connect.runtime.pipeline import Converters, Pipeline, steps_of
from ottla.connect.runtime.state import ConnectorTaskId
from ottla.connect.runtime.tolerance import ErrorHandler, ErrorStage, Tolerance
from ottla.connect.settings import SINK, SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROWS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The columns that the sink "ottla" writes."""
ROW_TYPES: Final = (
    "topic string, partition int, key binary, value binary, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)
"""The same as Spark names them."""
_FRAME_ROWS: Final = 1000
"""Of a frame, so that a task needs memory for few records."""


class Row(NamedTuple):
    """A record to write, as the columns of `ROWS` have it."""

    topic: str
    partition: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    timestamp: dt.datetime | None = None
    headers: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class TaskSettings:
    """A connector as the tasks of its query need it; it may contain secrets."""

    name: str
    config: Mapping[str, str] = field(repr=False)
    worker: Mapping[str, str] = field(repr=False)
    """The worker's converters."""
    modules: tuple[str, ...] = ()
    """Those whose functions transforms may call."""

    def pipeline(self, *, is_source: bool) -> tuple[Pipeline, ErrorHandler]:
        """Return the transforms and converters, and what tolerates their errors."""
        plugins = Plugins()
        plugins.allow_python(self.modules)

        def wait(seconds: float) -> bool:
            time.sleep(seconds)
            return False

        handler = ErrorHandler(
            ConnectorTaskId(self.name, 0),
            Tolerance.of((SOURCE if is_source else SINK).parse(self.config)),
            now_s=time.monotonic,
            wait=wait,
        )
        converters = Converters.of(plugins, self.config, self.worker)
        return Pipeline(steps_of(plugins, self.config), converters, handler), handler


def to_row(pipeline: Pipeline, record: SourceRecord) -> Row | None:
    """Return a record as its topic has it; None for one that was dropped or failed."""
    made = pipeline.transform(record)
    fields = None if made is None else pipeline.to_topic(made)
    if made is None or fields is None:
        return None
    value, key, headers = fields
    moment = None if made.timestamp_ms is None else data.timestamp(made.timestamp_ms)
    named = [{"key": name, "value": it} for name, it in headers or ()]
    return Row(made.topic, made.partition, key, value, moment, named or None)


def frames(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Yield rows in frames."""
    pending: list[Row] = []
    for row in rows:
        pending.append(row)
        if len(pending) == _FRAME_ROWS:
            yield _frame(pending)
            pending = []
    if pending:
        yield _frame(pending)


def _frame(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(it, of.type) for it, of in zip(columns, ROWS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


# ------------------------------------------------------------ from a format to topics


def to_topics(
    settings: TaskSettings, topic: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a format as records of a topic: a struct of the columns each."""
    pipeline, _ = settings.pipeline(is_source=True)

    def rows() -> Iterator[Row]:
        for batch in batches:
            schema = struct_schema(batch.schema)
            for values in batch.to_pylist():
                value = to_connect(schema, values)
                record = SourceRecord(topic, value_schema=schema, value=value)
                row = to_row(pipeline, record)
                if row is not None:
                    yield row

    yield from frames(rows())
    pipeline.close()


def struct_schema(columns: Iterable[pa.Field]) -> Schema:
    """Return the schema of a row; ConnectException for a type that Connect does not have."""
    return data.struct_of((it.name, schema_of(it.type, it.name)) for it in columns)


_SIMPLE: Final = {
    pa.bool_(): data.BOOLEAN,
    pa.int8(): data.INT8,
    pa.int16(): data.INT16,
    pa.int32(): data.INT32,
    pa.int64(): data.INT64,
    pa.float32(): data.FLOAT32,
    pa.float64(): data.FLOAT64,
    pa.string(): data.STRING,
    pa.large_string(): data.STRING,
    pa.binary(): data.BYTES,
    pa.large_binary(): data.BYTES,
    pa.date32(): data.DATE,
}


@cache
def schema_of(of: pa.DataType, name: str) -> Schema:
    """Return the schema of a column; all are optional, as Spark's are in most formats."""
    made = _SIMPLE.get(of)
    if made is None:
        if pa.types.is_timestamp(of):
            made = data.TIMESTAMP
        elif pa.types.is_decimal(of):
            made = data.decimal(of.scale)
        elif pa.types.is_list(of):
            made = data.array(schema_of(of.value_type, name))
        elif pa.types.is_struct(of):
            made = struct_schema(of)
        elif pa.types.is_map(of):
            made = data.mapping(schema_of(of.key_type, name), schema_of(of.item_type, name))
        else:
            raise ConnectException(f"column {name}: Connect has no type for {of}; cast it")
    return made.as_optional()


def to_connect(schema: Schema, value: Any) -> Any:
    """Return a value of Arrow as one of Connect."""
    if value is None:
        return None
    match schema.type:
        case SchemaType.STRUCT:
            fields = {it.name: to_connect(it.schema, value[it.name]) for it in schema.fields}
            return Struct(schema, **fields)
        case SchemaType.ARRAY:
            assert schema.value_schema is not None
            return [to_connect(schema.value_schema, it) for it in value]
        case SchemaType.MAP:
            keys, values = schema.key_schema, schema.value_schema
            assert keys is not None
            assert values is not None
            return {to_connect(keys, key): to_connect(values, it) for key, it in value}
    if isinstance(value, dt.datetime):
        # Connect's moments are of milliseconds
        return data.timestamp(data.timestamp_ms(value))
    return value


# ------------------------------------------------------------ from topics


class TopicRow(NamedTuple):
    """A row of the source "ottla"."""

    topic: str
    partition: int
    offset: int
    timestamp: dt.datetime | None
    key: bytes | None
    value: bytes | None
    headers: list[dict[str, Any]] | None

    def consumed(self) -> ConsumerRecord:
        """Return the record that a consumer would have."""
        return ConsumerRecord(
            self.topic,
            self.partition,
            self.offset,
            -1 if self.timestamp is None else data.timestamp_ms(self.timestamp),
            self.key,
            self.value,
            tuple((it["key"], it["value"]) for it in self.headers or ()),
        )


TOPIC_COLUMNS: Final = TopicRow._fields


def sink_records(pipeline: Pipeline, batches: Iterable[pa.RecordBatch]) -> Iterator[SinkRecord]:
    """Yield the transformed records of rows, without those that were dropped or failed."""
    for batch in batches:
        for values in batch.to_pylist():
            made = pipeline.from_topic(TopicRow(**values).consumed())
            if made is not None:
                assert isinstance(made, SinkRecord)
                yield made


def from_topics(
    settings: TaskSettings, columns: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield records as rows of a format, whose columns are fields of their values.

    A record without value, which deletes its key, has no row.
    """
    pipeline, handler = settings.pipeline(is_source=False)
    rows: list[dict[str, Any]] = []
    for record in sink_records(pipeline, batches):
        made = handler.run(
            ErrorStage.VALUE_CONVERTER,
            pipeline,
            lambda: _fields(columns, record.value),  # noqa: B023 - called at once
        )
        if made is None:
            continue
        rows.append(made)
        if len(rows) == _FRAME_ROWS:
            yield pa.RecordBatch.from_pylist(rows, schema=columns)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=columns)
    pipeline.close()


def _fields(columns: pa.Schema, value: Any) -> dict[str, Any] | None:
    plain = to_plain(value)
    if plain is None:
        return None
    if not isinstance(plain, dict):
        raise DataException(
            f"{type(plain).__name__} is no row: a format has columns, so that values are structs "
            "or maps (HoistField makes a struct of anything)"
        )
    row = {it.name: plain.get(it.name) for it in columns}
    # here, where the error is that of one record
    pa.RecordBatch.from_pylist([row], schema=columns)
    return row


def to_plain(value: Any) -> Any:
    """Return a value with dicts in place of structs."""
    if isinstance(value, Struct):
        return {it.name: to_plain(value[it.name]) for it in value.schema.fields}
    if isinstance(value, dict):
        return {key: to_plain(it) for key, it in value.items()}
    if isinstance(value, list):
        return [to_plain(it) for it in value]
    return value
