"""Decodes the records of the coordinators' internal topics, and formats them as JSON.

Kafka: org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde,
org.apache.kafka.tools.consumer.CoordinatorRecordMessageFormatter and its subclasses.
"""

from __future__ import annotations

from importlib import import_module
from struct import Struct as Layout
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.output.message_json import json_text, message_json
from ottla.errors import CorruptMessage, OttlaError
from ottla.protocol.codec import decode_at
from ottla.protocol.schema import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.consumer.record_decoder import ConsumerRecord

_VERSION = Layout(">h")
PACKAGE = "org.apache.kafka.tools.consumer."
_GROUP = ("group", "consumer_group", "share_group", "streams_group")


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


class _Kinds(NamedTuple):
    """The modules of a topic's records, and the types that are shown (None: all)."""

    modules: tuple[str, ...]
    shown: frozenset[int] | None = None


FORMATTERS = {
    "OffsetsMessageFormatter": _Kinds(_GROUP, frozenset({0, 1})),
    "GroupMetadataMessageFormatter": _Kinds(_GROUP, frozenset({2})),
    "ShareGroupMessageFormatter": _Kinds(_GROUP, frozenset(range(10, 16))),
    "TransactionLogMessageFormatter": _Kinds(("transaction",)),
    "group.share.ShareGroupStateMessageFormatter": _Kinds(("share",)),
}


def coordinator_formatter(class_name: str) -> Callable[[ConsumerRecord], str] | None:
    """Return the formatter for one of Kafka's classes, or None for another class.

    Its output has no line ends, as that of Kafka's formatters. Records of other types are
    omitted; ValueError is raised for a record that cannot be decoded.
    """
    found = FORMATTERS.get(class_name.removeprefix(PACKAGE))
    if found is None:
        return None
    kinds = coordinator_kinds(*found.modules)

    def write(record: ConsumerRecord) -> str:
        if record.key is None:
            return ""
        try:
            read = read_coordinator_record(record.key, record.value, kinds)
        except UnknownTypeError:
            return ""
        except (OttlaError, ValueError) as error:
            raise ValueError(
                f"Could not read record at offset {record.offset} due to: {error}"
            ) from error
        if found.shown is not None and read.type not in found.shown:
            return ""
        value = None
        if read.value is not None:
            data = message_json(read.value, read.version)
            value = {"version": read.version, "data": data}
        key = {"type": read.type, "data": message_json(read.key, 0)}
        return json_text({"key": key, "value": value})

    return write
