"""All message classes paired with Kafka's definitions, and messages as Kafka's JSON.

Kafka: the `*JsonConverter` classes. Fields are paired by their place on the wire, so that no rule
about spelling is needed.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from ottla.protocol.schema import _MAX_VERSION, NO_VERSIONS, Versions, parse_versions
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.schema import Field, Struct, StructMeta

JAVA_PACKAGES = {
    "clients": "org.apache.kafka.common.message",
    "metadata": "org.apache.kafka.common.metadata",
    "group-coordinator": "org.apache.kafka.coordinator.group.generated",
    "transaction-coordinator": "org.apache.kafka.coordinator.transaction.generated",
    "share-coordinator": "org.apache.kafka.coordinator.share.generated",
    "raft": "org.apache.kafka.raft.generated",
    "storage": "org.apache.kafka.server.log.remote.metadata.storage.generated",
}


def java_class(definition: dict[str, Any]) -> str:
    """Return the name of the Java class that Kafka makes from a definition."""
    name = definition["name"]
    package = JAVA_PACKAGES[definition["jar"]]
    suffix = "Data" if definition["type"] in ("request", "response", "header") else ""
    return f"{package}.{name}{suffix}"


class Paired:
    """A struct paired with the fields of its definition that some supported version carries."""

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
    return versions.lowest > versions.highest or versions.lowest == _MAX_VERSION


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
