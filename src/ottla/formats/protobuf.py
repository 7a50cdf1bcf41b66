"""Protobuf messages of classes that protoc has generated.

Kafka: none; Confluent: KafkaProtobufSerializer. The protobuf package reads and writes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ottla.formats.wire_format import known_ids, with_head, without_head

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_FIRST_MESSAGE: Final = b"\x00"
"""The index of the first message of a schema, in Confluent's wire format."""


class ProtobufCodec:
    """Reads and writes messages, in Protobuf and as JSON for columns."""

    def __init__(self, kind: Any, schema_id: int | None, former_ids: Collection[int]) -> None:
        self._kind, self._schema_id = kind, schema_id
        self._known = known_ids(schema_id, former_ids)

    def write(self, value: Any) -> bytes:
        """Return a message's bytes, after the head if its schema has an id."""
        message = self._kind(**value) if isinstance(value, dict) else value  # made by columns
        data = message.SerializeToString(deterministic=True)
        return with_head(self._schema_id, data, _FIRST_MESSAGE)

    def read(self, data: bytes) -> Any:
        """Return a message; ValueError for bytes of another schema."""
        return self._kind.FromString(without_head(self._known, data, _FIRST_MESSAGE)[1])

    def write_json(self, value: Any) -> bytes:
        """Return a message as JSON."""
        return json.dumps(as_dict(value), separators=(",", ":")).encode()

    def read_json(self, data: bytes) -> Any:
        """Return the message of JSON."""
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
        return [_plain_one(field, item) for item in value]
    return _plain_one(field, value)


def _plain_one(field: Any, value: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        return as_dict(value)
    if field.cpp_type == field.CPPTYPE_ENUM:
        return field.enum_type.values_by_number[value].name
    return value
