"""The formats of files; Parquet's library is imported where it is used.

Kafka: none.
"""

from __future__ import annotations

import base64
import csv
import datetime as dt
import gzip
import io
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

from ottla.connect.converters.json import JsonConverter
from ottla.connect.data import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    SchemaType,
    Struct,
    scale_of,
)
from ottla.connect.errors import ConnectException, DataException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.connect.data import Schema
    from ottla.connect.records import SinkRecord

_ROW_GROUP: Final = 1000
"""Rows of Parquet in memory, as a row group is written at once."""
_ROW_GROUP_BYTES: Final = 16 << 20
"""Bytes that complete a row group of fewer rows: each partition of a task may have as many."""
_DIGITS: Final = 38
"""Of Arrow's decimals."""


class FileWriter(Protocol):
    """Writes the records of one file, all of one shape."""

    def write(self, record: SinkRecord) -> int:
        """Add a record; returns its bytes, about. Nothing is added if it raises."""

    def close(self) -> None:
        """Write what the format has at its end; the file stays open."""


def shape_of(format_: str, record: SinkRecord) -> Any:
    """Return what all records of a file share: the columns, or the schema."""
    if format_ == "parquet":
        if not isinstance(record.value, Struct):
            raise DataException("Parquet has columns with types: values must be structs")
        return record.value.schema
    return _columns(record.value) if format_ == "csv" else None


def file_suffix(format_: str, compression: str) -> str:
    """Return the end of the names of files."""
    return f".{format_}.gz" if compression == "gzip" and format_ != "parquet" else f".{format_}"


def open_writer(format_: str, compression: str, shape: Any, file: BinaryIO) -> FileWriter:
    """Begin a file with records of a shape."""
    if format_ == "parquet":
        return _ParquetWriter(file, shape, compression)
    return _LineWriter(file, shape, is_compressed=compression == "gzip")


def _columns(value: Any) -> tuple[str, ...]:
    if isinstance(value, Struct):
        return tuple(it.name for it in value.schema.fields)
    return tuple(map(str, value)) if isinstance(value, dict) else ("value",)


class _LineWriter:
    """CSV with a header if there are columns, JSON lines without them."""

    def __init__(
        self, file: BinaryIO, columns: tuple[str, ...] | None, *, is_compressed: bool
    ) -> None:
        self._converter = JsonConverter()
        self._converter.configure({"schemas.enable": "false"}, is_key=False)
        self._file: BinaryIO | gzip.GzipFile = file
        if is_compressed:  # without name and time, so that equal records are equal bytes
            self._file = gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0)
        self._has_columns = columns is not None
        if columns is not None:
            self._file.write(_csv_line(columns))

    def write(self, record: SinkRecord) -> int:
        """Write a line."""
        if self._has_columns:
            line = _csv_line(self._cells(record))
        else:
            line = self._json(record.value_schema, record.value) + b"\n"
        self._file.write(line)
        return len(line)

    def close(self) -> None:
        """End the compressed data."""
        if isinstance(self._file, gzip.GzipFile):
            self._file.close()

    def _json(self, schema: Schema | None, value: Any) -> bytes:
        return self._converter.from_connect("", (), schema, value) or b"null"

    def _cells(self, record: SinkRecord) -> list[str]:
        value = record.value
        if isinstance(value, Struct):
            return [self._cell(it.schema, value[it.name]) for it in value.schema.fields]
        if isinstance(value, dict):
            return [self._cell(None, it) for it in value.values()]
        return [self._cell(record.value_schema, value)]

    def _cell(self, schema: Schema | None, value: Any) -> str:
        match value:
            case None:
                return ""
            case str():
                return value
            case bytes() | bytearray() | memoryview():
                return base64.b64encode(value).decode()
            case dt.datetime() | dt.date() | dt.time():
                return value.isoformat()
            case Decimal():
                return f"{value:f}"
        return self._json(schema, value).decode()


def _csv_line(cells: Any) -> bytes:
    text = io.StringIO()
    # a cell is quoted for characters of the terminator: with \r\n, also for a \r of its own
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    try:
        return text.getvalue().removesuffix("\r\n").encode() + b"\n"
    except UnicodeEncodeError as error:
        raise DataException("A text with half of a surrogate pair cannot be written") from error


class _ParquetWriter:
    def __init__(self, file: BinaryIO, schema: Schema, compression: str) -> None:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as error:
            raise ConnectException(
                "format=parquet needs pyarrow: pip install '.[tables]' in Ottla's source tree"
            ) from error
        self._arrow = pa
        try:
            self._schema = pa.schema(
                [
                    pa.field(it.name, _arrow_type(pa, it.schema), it.schema.optional)
                    for it in schema.fields
                ]
            )
            self._writer = parquet.ParquetWriter(file, self._schema, compression=compression)
        except (pa.ArrowException, ValueError) as error:
            raise DataException(f"The schema is none of Parquet: {error}") from error
        self._batches: list[Any] = []
        self._bytes = 0

    def write(self, record: SinkRecord) -> int:
        """Keep a row until its group is complete."""
        pa = self._arrow
        try:
            batch = pa.RecordBatch.from_pylist([_plain(record.value)], schema=self._schema)
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise DataException(f"The value is no row of Parquet: {error}") from error
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if len(self._batches) == _ROW_GROUP or self._bytes >= _ROW_GROUP_BYTES:
            self._write_group()
        return int(batch.nbytes)

    def close(self) -> None:
        """Write the last rows and the footer."""
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._batches:
            self._writer.write_table(self._arrow.Table.from_batches(self._batches).combine_chunks())
            self._batches, self._bytes = [], 0


def _arrow_type(pa: Any, schema: Schema) -> Any:
    logical: Mapping[str | None, Any] = {
        DATE_NAME: pa.date32,
        TIME_NAME: lambda: pa.time32("ms"),
        TIMESTAMP_NAME: lambda: pa.timestamp("ms", tz="UTC"),
        DECIMAL_NAME: lambda: pa.decimal128(_DIGITS, _parquet_scale(schema)),
    }
    made = logical.get(schema.name)
    if made is not None:
        return made()
    match schema.type:
        case SchemaType.STRUCT:
            fields = [pa.field(it.name, _arrow_type(pa, it.schema)) for it in schema.fields]
            return pa.struct(fields)
        case SchemaType.ARRAY:
            assert schema.value_schema is not None
            return pa.list_(_arrow_type(pa, schema.value_schema))
        case SchemaType.MAP:
            assert schema.key_schema is not None
            assert schema.value_schema is not None
            keys, values = schema.key_schema, schema.value_schema
            return pa.map_(_arrow_type(pa, keys), _arrow_type(pa, values))
    simple: Mapping[SchemaType, Any] = {
        SchemaType.INT8: pa.int8,
        SchemaType.INT16: pa.int16,
        SchemaType.INT32: pa.int32,
        SchemaType.INT64: pa.int64,
        SchemaType.FLOAT32: pa.float32,
        SchemaType.FLOAT64: pa.float64,
        SchemaType.BOOLEAN: pa.bool_,
        SchemaType.STRING: pa.string,
        SchemaType.BYTES: pa.binary,
    }
    return simple[schema.type]()


def _parquet_scale(schema: Schema) -> int:
    scale = scale_of(schema)
    if not 0 <= scale <= _DIGITS:
        raise DataException(f"Parquet has no decimals of scale {scale}")
    return scale


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return {it.name: _plain(value[it.name]) for it in value.schema.fields}
    if isinstance(value, dict):
        return [(_plain(key), _plain(it)) for key, it in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(it) for it in value]
    return value
