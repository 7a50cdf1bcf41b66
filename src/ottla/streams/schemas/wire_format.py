"""The head of a record whose schema has an id in a registry.

Kafka: none; Confluent: AbstractKafkaSchemaSerDe (a zero byte, the id in four bytes).
"""

from __future__ import annotations

from typing import Final

from ottla.streams.packing import Packing

_HEAD: Final = Packing(">bI")


def with_head(schema_id: int | None, data: bytes, rest: bytes = b"") -> bytes:
    """Return data after the head, if there is an id; `rest` ends the head."""
    return data if schema_id is None else _HEAD.pack(0, schema_id) + rest + data


def without_head(schema_id: int | None, data: bytes, rest: bytes = b"") -> bytes:
    """Return the data after the head; ValueError for another schema's."""
    if schema_id is None:
        return data
    magic, found = _HEAD.unpack_from(data)
    if magic != 0 or found != schema_id:
        raise ValueError(f"the record has schema {found}, not {schema_id}")
    end = _HEAD.size + len(rest)
    if data[_HEAD.size : end] != rest:
        raise ValueError("the record is of another message of its schema")
    return data[end:]
