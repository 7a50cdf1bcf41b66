"""Serdes: how keys and values are written in topics and stores.

Kafka: org.apache.kafka.common.serialization.Serdes, kstream.{WindowedSerdes}; JSON, Avro and
Protobuf by schemas of the program. The encodings of primitives are Kafka's.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.formats.primitives import NUMBERS, Packing, write_json
from ottla.streams.data.windows import Window, Windowed
from ottla.streams.errors import SerializationException

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


LONG = Packing(">q")


@dataclass(frozen=True)
class Serde:
    """A pair of functions between values and bytes; None stays None."""

    name: str
    write: Callable[[Any], bytes | None]
    read: Callable[[bytes], Any]
    schema: Any = None
    """The type of the values: Spark's DataType, or its text."""
    for_columns: Serde | None = None
    """The serde of the same values between functions and columns, where Spark lacks this one."""

    def serialize(self, value: Any) -> bytes | None:
        """Return a value's bytes; SerializationException for one of another type."""
        if value is None:
            return None
        try:
            return self.write(value)
        except (struct.error, TypeError, ValueError, AttributeError) as error:
            kind = type(value).__name__
            text = f"the {self.name} serde cannot write a value of type {kind}: {error}"
            raise SerializationException(text) from error

    def deserialize(self, data: bytes | None) -> Any:
        """Return the value of bytes; SerializationException for bytes of another form."""
        if data is None:
            return None
        try:
            return self.read(data)
        except Exception as error:
            text = f"the {self.name} serde cannot read {len(data)} bytes: {error}"
            raise SerializationException(text) from error


class Serdes:
    """The serdes at hand."""

    @staticmethod
    def string() -> Serde:
        """Return the serde of text in UTF-8."""
        return Serde("string", _write_text, _read_text)

    @staticmethod
    def bytes() -> Serde:
        """Return the serde of bytes as they are."""
        return Serde("bytes", _write_bytes, bytes)

    @staticmethod
    def short() -> Serde:
        """Return the serde of numbers of 16 bits."""
        return _number("short")

    @staticmethod
    def integer() -> Serde:
        """Return the serde of numbers of 32 bits."""
        return _number("integer")

    @staticmethod
    def long() -> Serde:
        """Return the serde of numbers of 64 bits."""
        return _number("long")

    @staticmethod
    def float() -> Serde:
        """Return the serde of numbers in single precision."""
        return _number("float", "FLOAT")

    @staticmethod
    def double() -> Serde:
        """Return the serde of numbers in double precision."""
        return _number("double", "DOUBLE")

    @staticmethod
    def boolean() -> Serde:
        """Return the serde of truth values: a byte."""
        return Serde("boolean", _write_boolean, _read_boolean)

    @staticmethod
    def uuid() -> Serde:
        """Return the serde of UUIDs as text."""
        return Serde("uuid", lambda value: str(value).encode(), lambda data: UUID(data.decode()))

    @staticmethod
    def json(kind: type | None = None, *, schema: Any = None) -> Serde:
        """Return the serde of JSON; with a dataclass, its fields, which must all be known.

        A schema, Spark's (`item STRING, price DOUBLE`), types the values for columns.
        """
        if kind is None:
            return Serde("json", _write_json, json.loads, schema)
        return Serde(f"json {kind.__name__}", _write_json, lambda data: kind(**json.loads(data)))

    @staticmethod
    def avro(
        schema: Any, *, schema_id: int | None = None, former: Mapping[int, Any] | None = None
    ) -> Serde:
        """Return the serde of Avro by a schema, as a document or its text; values are dicts.

        With a schema id records have the head of Confluent's wire format. What was written with
        one of the former schemas, by id, is read with it and resolved to this one.
        """
        from ottla.formats.avro import AvroCodec

        codec = AvroCodec(schema, schema_id, former or {})
        text = avro_type(codec.document)
        for_columns = None if text is None else Serdes.json(schema=text)
        return Serde(f"avro {codec.name}", codec.write, codec.read, text, for_columns)

    @staticmethod
    def protobuf(
        kind: Any, *, schema_id: int | None = None, former_ids: Collection[int] = ()
    ) -> Serde:
        """Return the serde of messages of a class that protoc has generated.

        With a schema id records have the head of Confluent's wire format; the ids of former
        versions of the class are read, too.
        """
        from ottla.formats.protobuf import ProtobufCodec

        codec = ProtobufCodec(kind, schema_id, former_ids)
        text = protobuf_type(kind.DESCRIPTOR)
        for_columns = None
        if text is not None:
            for_columns = Serde("json", codec.write_json, codec.read_json, text)
        return Serde(f"protobuf {kind.__name__}", codec.write, codec.read, text, for_columns)

    @staticmethod
    def json_schema(
        schema: Any,
        *,
        schema_id: int | None = None,
        former_ids: Collection[int] = (),
        validate: Callable[[Any], object] | None = None,
    ) -> Serde:
        """Return the serde of JSON by a JSON Schema, as a document or its text; values are dicts.

        With a schema id records have the head of Confluent's wire format; the ids of former schemas
        are read, too. `validate` is called with each document and raises for one that does not fit,
        such as `jsonschema.Draft202012Validator(schema).validate`; without it all are taken.
        """
        from ottla.formats.json_schema import JsonSchemaCodec, json_schema_type

        codec = JsonSchemaCodec(schema, schema_id, former_ids, validate)
        text = json_schema_type(codec.document)
        for_columns = None if text is None else Serdes.json(schema=text)
        return Serde(f"json schema {codec.name}", codec.write, codec.read, text, for_columns)

    @staticmethod
    def time_windowed(key: Serde, size_ms: int) -> Serde:
        """Return the serde of keys in windows of one size: the key, the start."""
        return _windowed("time-windowed", key, lambda start: start + size_ms)

    @staticmethod
    def session_windowed(key: Serde) -> Serde:
        """Return the serde of keys in sessions: the key, the end, the start."""
        return _windowed("session-windowed", key, None)


_COLUMN_NAMES = frozenset({"string", "bytes", "boolean", "short", "integer", "long"})


def has_columns(serde: Serde) -> bool:
    """Whether Spark reads the serde's bytes as typed columns."""
    return serde.name in _COLUMN_NAMES or (serde.name == "json" and serde.schema is not None)


def takes_columns(serde: Serde) -> bool:
    """Whether Spark writes columns as the serde's bytes."""
    return serde.name in _COLUMN_NAMES or serde.name == "json"


def _write_bytes(value: Any) -> bytes:
    """Return bytes as they are; TypeError for a number, of which Python makes as many zeros."""
    return bytes(memoryview(value))


def _write_text(value: str) -> bytes:
    return value.encode("utf-8")


def _read_text(data: bytes) -> str:
    return data.decode("utf-8")


def _write_boolean(value: Any) -> bytes:
    return b"\x01" if value else b"\x00"


def _read_boolean(data: bytes) -> bool:
    if data not in (b"\x00", b"\x01"):
        raise ValueError("a boolean is one byte, 0 or 1")
    return data == b"\x01"


def _write_json(value: Any) -> bytes:
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    return write_json(value)


def _number(name: str, schema: str | None = None) -> Serde:
    other = None if schema is None else Serdes.json(schema=schema)
    return Serde(name, *NUMBERS[name], schema, other)


def _windowed(name: str, key: Serde, end_of: Callable[[int], int] | None) -> Serde:
    """Return the serde of windowed keys; without `end_of` the end is written, too."""

    def write(value: Windowed) -> bytes:
        times = LONG.pack(value.window.start)
        if end_of is None:
            times = LONG.pack(value.window.end) + times
        return (key.serialize(value.key) or b"") + times

    def read(data: bytes) -> Windowed:
        (start,) = LONG.unpack(data[-8:])
        if end_of is not None:
            return Windowed(key.deserialize(data[:-8]), Window(start, end_of(start)))
        (end,) = LONG.unpack(data[-16:-8])
        return Windowed(key.deserialize(data[:-16]), Window(start, end))

    return Serde(f"{name} {key.name}", write, read)


_AVRO: Final = {
    "string": "STRING",
    "enum": "STRING",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
}
_PROTOBUF: Final = {
    "CPPTYPE_INT32": "INT",
    "CPPTYPE_UINT32": "BIGINT",
    "CPPTYPE_FLOAT": "FLOAT",
    "CPPTYPE_DOUBLE": "DOUBLE",
    "CPPTYPE_BOOL": "BOOLEAN",
    "CPPTYPE_STRING": "STRING",
    "CPPTYPE_ENUM": "STRING",
    "CPPTYPE_INT64": "BIGINT",
}


def avro_type(schema: Any) -> str | None:
    """Return Spark's text of a schema's type; None for types that JSON does not carry."""
    if isinstance(schema, list):
        kinds = [one for one in schema if one != "null"]
        return avro_type(kinds[0]) if len(kinds) == 1 else None
    if isinstance(schema, str):
        return _AVRO.get(schema)
    return None if "logicalType" in schema else _avro_complex_type(schema)


def _avro_complex_type(schema: dict[str, Any]) -> str | None:
    kind = schema["type"]
    if kind == "record":
        fields = [(one["name"], avro_type(one["type"])) for one in schema["fields"]]
        text = ", ".join(f"`{name}`: {inner}" for name, inner in fields)
        return None if any(inner is None for _, inner in fields) else f"STRUCT<{text}>"
    if kind not in ("array", "map"):
        return avro_type(kind)
    inner = avro_type(schema["items" if kind == "array" else "values"])
    opening = "ARRAY<" if kind == "array" else "MAP<STRING, "
    return None if inner is None else f"{opening}{inner}>"


def protobuf_type(descriptor: Any, within: tuple[str, ...] = ()) -> str | None:
    """Return Spark's text of a message's type; None for types that JSON does not carry."""
    name = descriptor.full_name
    if name in within or descriptor.GetOptions().map_entry:
        return None
    fields = [
        (field.name, _protobuf_field_type(field, (*within, name))) for field in descriptor.fields
    ]
    if not fields or any(text is None for _, text in fields):
        return None
    return f"STRUCT<{', '.join(f'`{name}`: {text}' for name, text in fields)}>"


def _protobuf_field_type(field: Any, within: tuple[str, ...]) -> str | None:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        text = protobuf_type(field.message_type, within)
    elif field.type == field.TYPE_BYTES:
        return None
    else:
        names = {getattr(field, name): name for name in _PROTOBUF}
        text = _PROTOBUF.get(names.get(field.cpp_type, ""))
    return f"ARRAY<{text}>" if field.is_repeated and text is not None else text
