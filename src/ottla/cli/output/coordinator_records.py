"""Decodes the records of the coordinators' internal topics.

Kafka: org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde.
"""

from __future__ import annotations

from importlib import import_module
from struct import Struct as Layout
from typing import NamedTuple

from ottla.errors import CorruptMessage, OttlaError
from ottla.protocol.codec import decode_at
from ottla.protocol.schema import Struct

_VERSION = Layout(">h")


class RecordKind(NamedTuple):
    """The messages of one type of a coordinator's records."""

    key: type[Struct]
    value: type[Struct]


class UnknownTypeError(CorruptMessage):
    """A record of a type that the coordinator does not have; a newer release wrote it."""


class DecodedCoordinatorRecord(NamedTuple):
    """A coordinator's record; a value of None deletes the entry of the key."""

    type: int
    key: Struct
    version: int
    value: Struct | None


def coordinator_kinds(*modules: str) -> dict[int, RecordKind]:
    """Pair the keys and values of record modules by their type."""
    keys: dict[int, type[Struct]] = {}
    values: dict[int, type[Struct]] = {}
    for name in modules:
        for schema in vars(import_module(f"ottla.protocol.records.{name}")).values():
            if isinstance(schema, type) and issubclass(schema, Struct) and schema.message_key >= 0:
                (keys if schema.__name__.endswith("Key") else values)[schema.message_key] = schema
    return {number: RecordKind(key, values[number]) for number, key in keys.items()}


def read_coordinator_record(
    key: bytes, value: bytes | None, kinds: dict[int, RecordKind]
) -> DecodedCoordinatorRecord:
    """Decode a record of these kinds; raises UnknownTypeError, CorruptMessage."""
    number = read_version(key, "key")
    kind = kinds.get(number)
    if kind is None:
        raise UnknownTypeError(f"Unknown record type {number}")
    message = read_message(kind.key, kind.key.versions.lowest, key, ("key", number))
    if value is None:
        return DecodedCoordinatorRecord(number, message, 0, None)
    version = read_version(value, "value")
    if version not in kind.value.versions:
        raise CorruptMessage(f"Found an unknown record version {version} for {number} type")
    body = read_message(kind.value, version, value, ("value", version))
    return DecodedCoordinatorRecord(number, message, version, body)


def read_version(data: bytes, what: str) -> int:
    """Return the version or type that a key or value begins with; raises CorruptMessage."""
    if len(data) < _VERSION.size:
        raise CorruptMessage(f"Could not read version from {what}'s buffer.")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def read_message(cls: type[Struct], version: int, data: bytes, shown: tuple[str, int]) -> Struct:
    """Decode a message after its version; `shown` names it in errors. Raises CorruptMessage."""
    what, number = shown
    try:
        return decode_at(cls, version, memoryview(data), _VERSION.size)[0]
    except (OttlaError, ValueError, IndexError) as error:
        raise CorruptMessage(
            f"Could not read record with version {number} from {what}'s buffer due to: {error}."
        ) from error
