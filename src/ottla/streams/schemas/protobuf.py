"""Protobuf messages of classes that protoc has generated.

Kafka: none; the protobuf package reads and writes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ottla.streams.schemas.wire_format import known_ids, with_head, without_head
from ottla.streams.serdes import Serde

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_FIRST_MESSAGE: Final = b"\x00"
"""The index of the first message of a schema, in Confluent's wire format."""
_TYPES: Final = {
    "CPPTYPE_INT32": "INT",
    "CPPTYPE_UINT32": "BIGINT",
    "CPPTYPE_FLOAT": "FLOAT",
    "CPPTYPE_DOUBLE": "DOUBLE",
    "CPPTYPE_BOOL": "BOOLEAN",
    "CPPTYPE_STRING": "STRING",
    "CPPTYPE_ENUM": "STRING",
    "CPPTYPE_INT64": "BIGINT",
}


def protobuf_serde(kind: Any, schema_id: int | None, former_ids: Collection[int]) -> Serde:
    """Return the serde of a class of messages."""
    messages = _Messages(kind, schema_id, former_ids)
    text = spark_type(kind.DESCRIPTOR)
    for_columns = None
    if text is not None:
        for_columns = Serde("json", messages.write_json, messages.read_json, text)
    name = f"protobuf {kind.__name__}"
    return Serde(name, messages.write, messages.read, text, for_columns)


class _Messages:
    """Reads and writes messages, in Protobuf and as JSON for columns."""

    def __init__(self, kind: Any, schema_id: int | None, former_ids: Collection[int]) -> None:
        self._kind, self._schema_id = kind, schema_id
        self._known = known_ids(schema_id, former_ids)

    def write(self, value: Any) -> bytes:
        message = self._kind(**value) if isinstance(value, dict) else value  # made by columns
        data = message.SerializeToString(deterministic=True)
        return with_head(self._schema_id, data, _FIRST_MESSAGE)

    def read(self, data: bytes) -> Any:
        return self._kind.FromString(without_head(self._known, data, _FIRST_MESSAGE)[1])

    def write_json(self, value: Any) -> bytes:
        return json.dumps(as_dict(value), separators=(",", ":")).encode()

    def read_json(self, data: bytes) -> Any:
        return self._kind(**json.loads(data))


def as_dict(message: Any) -> dict[str, Any]:
    """Return a message's fields by name; 64-bit numbers stay numbers, other than in its JSON."""
    return {field.name: _plain(field, getattr(message, field.name)) for field in _fields(message)}


def _fields(message: Any) -> Iterator[Any]:
    for field in message.DESCRIPTOR.fields:
        if not field.has_presence or message.HasField(field.name):
            yield field


def _plain(field: Any, value: Any) -> Any:
    if field.is_repeated:
        return [_plain_one(field, one) for one in value]
    return _plain_one(field, value)


def _plain_one(field: Any, value: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        return as_dict(value)
    if field.cpp_type == field.CPPTYPE_ENUM:
        return field.enum_type.values_by_number[value].name
    return value


def spark_type(descriptor: Any, within: tuple[str, ...] = ()) -> str | None:
    """Return Spark's text of a message's type; None for types that JSON does not carry."""
    name = descriptor.full_name
    if name in within or descriptor.GetOptions().map_entry:
        return None
    fields = [(one.name, _field_type(one, (*within, name))) for one in descriptor.fields]
    if not fields or any(text is None for _, text in fields):
        return None
    return f"STRUCT<{', '.join(f'`{name}`: {text}' for name, text in fields)}>"


def _field_type(field: Any, within: tuple[str, ...]) -> str | None:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        text = spark_type(field.message_type, within)
    elif field.type == field.TYPE_BYTES:
        return None
    else:
        names = {getattr(field, name): name for name in _TYPES}
        text = _TYPES.get(names.get(field.cpp_type, ""))
    return f"ARRAY<{text}>" if field.is_repeated and text is not None else text
