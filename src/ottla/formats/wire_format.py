"""The head of a record whose schema has an id in a registry.

Kafka: none; Confluent: AbstractKafkaSchemaSerDe (a zero byte, the id in four bytes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.formats.primitives import Packing

if TYPE_CHECKING:
    from collections.abc import Collection

_HEAD: Final = Packing(">bI")


def with_head(schema_id: int | None, data: bytes, rest: bytes = b"") -> bytes:
    """Return data after the head, if there is an id; `rest` ends the head."""
    return data if schema_id is None else _HEAD.pack(0, schema_id) + rest + data


def without_head(
    known: Collection[int], data: bytes, rest: bytes = b""
) -> tuple[int | None, bytes]:
    """Return the id and the data after the head; without known ids all is data.

    ValueError for an id that is not known.
    """
    if not known:
        return None, data
    magic, found = _HEAD.unpack_from(data)
    if magic != 0 or found not in known:
        raise ValueError(f"the record has schema {found}, not {' or '.join(map(str, known))}")
    end = _HEAD.size + len(rest)
    if data[_HEAD.size : end] != rest:
        raise ValueError("the record is of another message of its schema")
    return found, data[end:]


def known_ids(schema_id: int | None, former: Collection[int]) -> list[int]:
    """Return the ids that a serde reads; ValueError for former ones without one to write."""
    if schema_id is None and former:
        raise ValueError("former schemas are known by their ids: give schema_id, too")
    return [] if schema_id is None else [schema_id, *former]
