"""Decoders of keys and values into typed Arrow columns.

Avro and Protobuf are read by `ottla.formats`, JSON by pyarrow. A value that cannot be decoded is an
error that names its offset, or null.

Kafka: none.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ottla.errors import ErrorCode, KafkaError
from ottla.formats.avro import AvroCodec
from ottla.formats.primitives import NUMBERS
from ottla.formats.protobuf import ProtobufCodec, as_dict
from ottla.tables.arrow import ARROW_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

RAW: Final = "bytes"
_NUMBER_TYPES: Final = {
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}
_ERRORS: Final = (pa.ArrowException, ValueError, TypeError, KeyError)
"""Of values that are none of a type."""


class Decoder:
    """Decodes binary arrays; one that fails is halved until the wrong value is found."""

    type: pa.DataType
    needs_sample = False
    """Whether `infer` has to see values first,"""
    sample_rows = 10_000
    """and how many."""

    def __init__(self, *, invalid: str = "error") -> None:
        """With `invalid="null"` a value that cannot be decoded is null."""
        if invalid not in ("error", "null"):
            raise ValueError(f'invalid is "error" or "null", not {invalid!r}')
        self._nulls = invalid == "null"

    def decode(self, values: pa.Array, place: Callable[[int], str], first: int = 0) -> pa.Array:
        """Return typed values; KafkaError INVALID_RECORD names the place of a wrong one."""
        try:
            return self.convert(values)
        except _ERRORS as error:
            count = len(values)
            if count > 1:
                half = count // 2
                parts = [
                    self.decode(values.slice(0, half), place, first),
                    self.decode(values.slice(half), place, first + half),
                ]
                return pa.concat_arrays(parts)
            if self._nulls:
                return pa.nulls(count, self.type)
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"the value at {place(first)} is not {self}: {text}"
            ) from error

    def convert(self, values: pa.Array) -> pa.Array:
        """Return typed values; raises one of several errors for a wrong one."""
        raise NotImplementedError

    def infer(self, values: pa.Array) -> None:
        """Take the type from values, where no schema was given."""


class Text(Decoder):
    """UTF-8."""

    type = pa.string()

    def convert(self, values: pa.Array) -> pa.Array:
        """Return strings."""
        return values.cast(pa.string())

    def __str__(self) -> str:
        return "UTF-8"


class _PerValue(Decoder):
    """Decodes one value at a time by a function."""

    def __init__(
        self, name: str, kind: pa.DataType, read: Callable[[bytes], Any], *, invalid: str = "error"
    ) -> None:
        super().__init__(invalid=invalid)
        self.type = kind
        self._name, self._read = name, read

    def convert(self, values: pa.Array) -> pa.Array:
        """Return what the function makes of each value."""
        read = self._read
        try:
            found = [None if data is None else read(data) for data in values.to_pylist()]
        except Exception as error:  # of formats' libraries, which have no common class
            raise ValueError(str(error) or type(error).__name__) from error
        return pa.array(found, self.type)

    def __str__(self) -> str:
        return self._name


class Json(Decoder):
    """JSON objects; without a schema its fields are those of the first values.

    A schema is a pyarrow schema or struct, or the fields as in SQL: "id bigint, name varchar".
    Fields that are not in it are left out. Without a schema a later value with a new field is an
    error, for its column would be missing.
    """

    def __init__(self, schema: Any = None, *, invalid: str = "error") -> None:
        super().__init__(invalid=invalid)
        self.needs_sample = self._is_inferred = schema is None
        self.type = pa.struct([]) if schema is None else struct_of(schema)

    def convert(self, values: pa.Array) -> pa.Array:
        """Return structs."""
        if not values.null_count:
            return self._parse(values, self.type)
        valid = values.is_valid()
        rows = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
        return self._parse(values.drop_null(), self.type).take(pc.if_else(valid, rows, None))

    def infer(self, values: pa.Array) -> None:
        """Take the type of JSON values; KafkaError INVALID_RECORD when they have none in common."""
        self.needs_sample = False
        values = values.drop_null()
        if not len(values):
            return  # a topic without values has no fields
        found = None
        with suppress(*_ERRORS):
            found = _without_nulls(self._parse(values, None).type)
        if found is None or not pa.types.is_struct(found):
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                "the values have no common JSON type: give a schema, or read them as strings",
            )
        self.type = found

    def _parse(self, values: pa.Array, kind: pa.DataType | None) -> pa.Array:
        """Parse values; each is wrapped, so that none can end or continue another."""
        if not len(values) and kind is not None:
            return pa.array([], kind)
        lines = pc.binary_join_element_wise(b'{"v":', values, b"}\n", b"")
        data = b"".join(lines.to_pylist())
        table = pj.read_json(
            io.BytesIO(data),
            pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            pj.ParseOptions(
                explicit_schema=None if kind is None else pa.schema([("v", kind)]),
                newlines_in_values=True,
                unexpected_field_behavior=(
                    "infer" if kind is None else "error" if self._is_inferred else "ignore"
                ),
            ),
        )
        if table.num_rows != len(values):
            raise ValueError(f"{len(values)} values are {table.num_rows} documents")
        column: pa.ChunkedArray = table["v"]
        return column.combine_chunks()

    def __str__(self) -> str:
        return f"JSON of {self.type}" + " as inferred (give a schema)" * self._is_inferred


class Avro(_PerValue):
    """Avro by a schema, as a document or its text; ids as of `ottla.streams.Serdes.avro`."""

    def __init__(
        self,
        schema: Any,
        *,
        schema_id: int | None = None,
        former: Mapping[int, Any] | None = None,
        invalid: str = "error",
    ) -> None:
        codec = AvroCodec(schema, schema_id, former or {})
        kind = _avro_type(codec.document, {})
        super().__init__(f"Avro of {codec.name}", kind, codec.read, invalid=invalid)


class Protobuf(_PerValue):
    """Messages of a class that protoc has generated."""

    def __init__(
        self, message: Any, *, schema_id: int | None = None, invalid: str = "error"
    ) -> None:
        codec = ProtobufCodec(message, schema_id, ())
        super().__init__(
            f"Protobuf of {message.DESCRIPTOR.full_name}",
            _message_type(message.DESCRIPTOR, ()),
            lambda data: as_dict(codec.read(data)),
            invalid=invalid,
        )


def decoder_of(given: Any) -> Decoder | None:
    """Return a decoder by name, or the one given; None for raw bytes. ValueError for others."""
    if isinstance(given, Decoder):
        return given
    if given == RAW:
        return None
    if given == "string":
        return Text()
    if given == "json":
        return Json()
    if given in NUMBERS:
        return _PerValue(given, _NUMBER_TYPES[given], NUMBERS[given].read)
    names = ", ".join((RAW, "string", "json", *NUMBERS))
    raise ValueError(f"there is no format {given!r}; there are {names}, and Json, Avro, Protobuf")


def flattened(rows: Rows) -> Rows:
    """Return rows with the fields of a decoded value instead of it, and then the other columns.

    A field with the name of a record's column gets the prefix `value_`.
    """
    index = rows.schema.get_field_index("value")
    if index < 0 or not pa.types.is_struct(rows.schema.field(index).type):
        return rows
    value = rows.column(index)
    fields = value.flatten() if isinstance(value, pa.Array) else None
    if fields is None:
        fields = [pc.struct_field(value, [n]) for n in range(value.type.num_fields)]
    names = [
        f"value_{one.name}" if one.name in ARROW_TYPES else one.name
        for one in rows.schema.field(index).type
    ]
    others = [name for name in rows.schema.names if name != "value"]
    arrays = fields + [rows.column(name) for name in others]
    return type(rows).from_arrays(arrays, names=names + others)


# ------------------------------------------------------------ types

_SQL_TYPES: Final = {
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "text": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}


def struct_of(schema: Any) -> pa.StructType:
    """Return the struct of a schema: of pyarrow, or as in SQL; ValueError for others."""
    if isinstance(schema, pa.StructType):
        return schema
    if isinstance(schema, pa.Schema):
        return pa.struct(list(schema))
    if not isinstance(schema, str):
        raise ValueError(f"a schema is of pyarrow or text, not {type(schema).__name__}")  # noqa: TRY004
    fields = []
    for part in schema.split(","):
        name, _, kind = part.strip().partition(" ")
        found = _SQL_TYPES.get(kind.strip().lower())
        if not name or found is None:
            raise ValueError(
                f"{part.strip()!r} is no field: a name and one of {', '.join(_SQL_TYPES)}"
            )
        fields.append(pa.field(name, found))
    return pa.struct(fields)


def _without_nulls(kind: pa.DataType) -> pa.DataType:
    """Return an inferred type with strings where all values were null."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_without_nulls(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_nulls(kind.value_type))
    return kind


_AVRO_TYPES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_AVRO_LOGICAL: Final = {
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
}


def _avro_type(  # noqa: C901, PLR0911 - one branch a kind of type
    schema: Any, named: dict[str, pa.DataType]
) -> pa.DataType:
    """Return the Arrow type of an Avro schema; ValueError for one that has none."""
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if len(others) != 1:
            raise ValueError("a union of several types has no column type")
        return _avro_type(others[0], named)
    if isinstance(schema, str):
        if schema in named:
            return named[schema]
        if schema not in _AVRO_TYPES:
            raise ValueError(f"the type {schema!r} is not defined before its use")
        return _AVRO_TYPES[schema]
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[logical]
    if kind in ("record", "error"):
        found: pa.DataType = pa.struct(
            [pa.field(one["name"], _avro_type(one["type"], named)) for one in schema["fields"]]
        )
    elif kind == "array":
        return pa.list_(_avro_type(schema["items"], named))
    elif kind == "map":
        return pa.map_(pa.string(), _avro_type(schema["values"], named))
    else:
        found = _avro_type(kind, named)
    if "name" in schema:
        named[schema["name"]] = found
    return found


_MESSAGE_DEPTH: Final = 16
"""Of nested messages; one that contains itself has no column type."""


def _message_type(descriptor: Any, parents: tuple[str, ...]) -> pa.DataType:
    """Return the Arrow type of a message; ValueError for a recursive one or a map."""
    if descriptor.full_name in parents or len(parents) > _MESSAGE_DEPTH:
        raise ValueError(f"message {descriptor.full_name} contains itself")
    inside = (*parents, descriptor.full_name)
    return pa.struct([pa.field(one.name, _field_type(one, inside)) for one in descriptor.fields])


def _field_type(one: Any, parents: tuple[str, ...]) -> pa.DataType:
    names = {
        one.CPPTYPE_INT32: pa.int32(),
        one.CPPTYPE_INT64: pa.int64(),
        one.CPPTYPE_UINT32: pa.uint32(),
        one.CPPTYPE_UINT64: pa.uint64(),
        one.CPPTYPE_DOUBLE: pa.float64(),
        one.CPPTYPE_FLOAT: pa.float32(),
        one.CPPTYPE_BOOL: pa.bool_(),
        one.CPPTYPE_ENUM: pa.string(),
        one.CPPTYPE_STRING: pa.binary() if one.type == one.TYPE_BYTES else pa.string(),
    }
    if one.cpp_type == one.CPPTYPE_MESSAGE:
        if one.message_type.GetOptions().map_entry:
            raise ValueError(f"field {one.name} is a map, which has no column type here")
        found = _message_type(one.message_type, parents)
    else:
        found = names[one.cpp_type]
    return pa.list_(found) if one.is_repeated else found
