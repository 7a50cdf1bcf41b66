"""All message classes beside Kafka's definitions, random messages, and their JSON form.

Kafka: the `*JsonConverter` classes. Fields are paired by their place on the wire, so that no rule
about spelling is needed.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import ottla.protocol.apis
import ottla.protocol.records
from ottla.protocol import headers
from ottla.protocol.schema import Struct, StructMeta
from ottla.protocol.versions import MAX_VERSION, NO_VERSIONS, Versions, parse_versions
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from ottla.protocol.schema import Field

JAVA_PACKAGES = {
    "clients": "org.apache.kafka.common.message",
    "metadata": "org.apache.kafka.common.metadata",
    "group-coordinator": "org.apache.kafka.coordinator.group.generated",
    "transaction-coordinator": "org.apache.kafka.coordinator.transaction.generated",
    "share-coordinator": "org.apache.kafka.coordinator.share.generated",
    "raft": "org.apache.kafka.raft.generated",
    "storage": "org.apache.kafka.server.log.remote.metadata.storage.generated",
}
_INTEGERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
_BLOBS = (b"", b"\0", bytes(range(200)))
_VALUES: dict[str, tuple[Any, ...]] = {
    "str": ("", "a", "topic-1", "grüße", "日本語", "x" * 130),
    "bytes": _BLOBS,
    "Records": _BLOBS,
    "bool": (False, True),
    "float64": (0.0, -1.5, 1e300, math.pi),
}


def message_classes() -> dict[str, StructMeta]:
    """Return every outermost message class by name."""
    modules = [headers]
    for package in (ottla.protocol.apis, ottla.protocol.records):
        names = (found.name for found in pkgutil.iter_modules(package.__path__))
        modules += [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, StructMeta)
        and value.__module__ == module.__name__
        and "versions" in vars(value)
    }


def java_class(definition: dict[str, Any]) -> str:
    """Return the name of the Java class that Kafka makes from a definition."""
    name = definition["name"]
    package = JAVA_PACKAGES[definition["jar"]]
    suffix = "Data" if definition["type"] in ("request", "response", "header") else ""
    return f"{package}.{name}{suffix}"


class Paired:
    """A struct beside the fields of its definition that some live version carries."""

    def __init__(self, cls: StructMeta, definition: dict[str, Any], live: Versions) -> None:
        self.cls = cls
        self.live = live
        self.common = {
            one["name"]: one["fields"] for one in definition.get("commonStructs", [])
        } | definition.get("inherited", {})
        self.fields = [
            (one, cut(carried_versions(one), live))
            for one in definition["fields"]
            if not is_empty(cut(carried_versions(one), live))
        ]

    def pairs(self) -> Iterator[tuple[Field, dict[str, Any], Versions]]:
        """Yield each field, its definition and the live versions that carry it."""
        for field, (defined, versions) in zip(self.cls.fields, self.fields, strict=True):
            yield field, defined, versions

    def inner(self, field: Field, defined: dict[str, Any], versions: Versions) -> Paired:
        """Return the pairing of the struct that a field holds."""
        assert field.struct is not None
        name = defined["type"].removeprefix("[]")
        fields = defined.get("fields") or self.common[name]
        return Paired(field.struct, {"fields": fields, "inherited": self.common}, versions)


def pair(cls: StructMeta, definition: dict[str, Any]) -> Paired:
    """Pair a message class with its definition."""
    return Paired(cls, definition, parse_versions(definition["validVersions"]))


def carried_versions(defined: dict[str, Any]) -> Versions:
    """Return the versions of a field; a tagged one may leave them out."""
    return parse_versions(defined.get("versions") or defined["taggedVersions"])


def cut(one: Versions, other: Versions) -> Versions:
    """Return the versions in both ranges."""
    both = Versions(max(one.lowest, other.lowest), min(one.highest, other.highest))
    return NO_VERSIONS if both.lowest > both.highest else both


def is_empty(versions: Versions) -> bool:
    """Whether a range holds no version."""
    return versions.lowest > versions.highest or versions.lowest == MAX_VERSION


# ---------------------------------------------------------------- random messages


def random_message(cls: StructMeta, version: int, rng: Random, depth: int = 0) -> Struct:
    """Make a message that this version can carry whole, every kind of value mixed."""
    values = {}
    for field in cls.fields:
        if version not in field.versions or (field.tag is not None and rng.random() < 0.4):
            continue
        values[field.name] = _random_value(field, version, rng, depth)
    return cls(**values)  # type: ignore[no-any-return]


def _random_value(field: Field, version: int, rng: Random, depth: int) -> Any:
    if version in field.nullable and rng.random() < 0.2:
        return None
    if field.is_array:
        size = rng.choice((0, 1, 2, 3) if depth < 2 else (0, 1, 1))
        return [_random_element(field, version, rng, depth) for _ in range(size)]
    return _random_element(field, version, rng, depth)


def _random_element(field: Field, version: int, rng: Random, depth: int) -> Any:
    if field.struct is not None:
        return random_message(field.struct, version, rng, depth + 1)
    if field.element in _INTEGERS:
        lowest, highest = _INTEGERS[field.element]
        return rng.choice((0, 1, lowest, highest, rng.randint(lowest, highest)))
    if field.element == "Uuid":
        return Uuid(rng.randbytes(16))
    return rng.choice(_VALUES[field.element])


# ---------------------------------------------------------------- JSON as Kafka writes it


def to_json(
    message: Struct, paired: Paired, version: int, *, records_as_size: bool = False
) -> dict[str, Any]:
    """Return the JSON that Kafka's converter reads; tagged defaults left out.

    With `records_as_size` it is the JSON that the converter writes.
    """
    shown: dict[str, Any] = {}
    for field, defined, versions in paired.pairs():
        value = getattr(message, field.name)
        if version not in versions:
            continue
        if version in field.tagged and value == field.make_default():
            continue
        name = defined["name"][0].lower() + defined["name"][1:]
        if field.element == "Records" and records_as_size and value is not None:
            shown[f"{name}SizeInBytes"] = len(value)
        elif field.struct is None or value is None:
            shown[name] = _plain(value)
        else:
            inner = paired.inner(field, defined, versions)
            made = [
                to_json(one, inner, version, records_as_size=records_as_size)
                for one in (value if field.is_array else [value])
            ]
            shown[name] = made if field.is_array else made[0]
    return shown


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, bytes | memoryview):
        return b64encode(value).decode()
    return value
