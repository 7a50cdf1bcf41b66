"""Every message, field by field, against the definitions inside Kafka's jars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.protocol.schema import NO_VERSIONS, PRIMITIVES, Request, Versions, parse_versions
from ottla.types import ZERO_UUID
from tests.conformance.messages import Paired, cut, is_empty, pair
from tests.protocol.messages import message_classes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.schema import Field
    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance


def _read_integer(text: str) -> int:
    return int(text or "0", 0)


_READERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "bytes": str.encode,
    "Uuid": lambda _: ZERO_UUID,
    "bool": lambda text: text.lower() == "true",
    "float64": lambda text: float(text or 0),
}
_KINDS = {"str": "string", "Uuid": "uuid", "Records": "records"}


@pytest.fixture(scope="module")
def definitions(kafka: Kafka) -> dict[str, dict[str, Any]]:
    """Return Kafka's live definitions by name."""
    return kafka.definitions()


def test_the_same_messages_exist(definitions: dict[str, dict[str, Any]]) -> None:
    """The messages are exactly Kafka's, but for one that is read and written without a class."""
    assert {*message_classes(), "RequestHeader"} == set(definitions)


@pytest.mark.parametrize("name", sorted(message_classes()))
def test_message_equals_its_definition(name: str, definitions: dict[str, dict[str, Any]]) -> None:
    """Key, versions, listeners and all fields with all their attributes are Kafka's."""
    cls, defined = message_classes()[name], definitions[name]
    assert cls.versions == parse_versions(defined["validVersions"])
    assert cls.flexible == parse_versions(defined["flexibleVersions"])
    assert cls.message_key == defined.get("apiKey", -1)
    if issubclass(cls, Request):
        assert list(cls.api_listeners) == defined["listeners"]
        assert cls.latest_version_unstable == defined.get("latestVersionUnstable", False)
    _compare_fields(pair(cls, defined), name)


def _compare_fields(paired: Paired, path: str) -> None:
    for field, defined, versions in paired.pairs():
        here = f"{path}.{defined['name']}"
        assert _letters(field.name) == _letters(defined["name"]), here
        assert _shape(field, paired.live) == _defined_shape(defined, versions), here
        assert _type(field) == defined["type"] or field.struct is not None, here
        assert field.is_array == defined["type"].startswith("[]"), here
        assert _default(field) == _defined_default(field, defined), here
        if field.struct is not None:
            assert defined["type"][0].isupper() or defined["type"][2].isupper(), here
            _compare_fields(paired.inner(field, defined, versions), here)


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def _type(field: Field) -> str:
    kind = _KINDS.get(field.element, field.element)
    return f"[]{kind}" if field.is_array else kind


def _shape(field: Field, live: Versions) -> dict[str, Any]:
    return {
        "versions": cut(field.versions, live),
        "nullable": _within(field.nullable, cut(field.versions, live)),
        "tag": field.tag,
        "tagged": _within(field.tagged, live),
        "ignorable": field.ignorable,
        "flexible": field.flexible,
    }


def _defined_shape(defined: dict[str, Any], versions: Versions) -> dict[str, Any]:
    flexible = defined.get("flexibleVersions")
    return {
        "versions": versions,
        "nullable": _within(parse_versions(defined.get("nullableVersions", "none")), versions),
        "tag": defined.get("tag"),
        "tagged": _within(parse_versions(defined.get("taggedVersions", "none")), versions),
        "ignorable": defined.get("ignorable", False) in (True, "true"),
        "flexible": parse_versions(flexible) if flexible else None,
    }


def _within(some: Versions, live: Versions) -> Versions:
    both = cut(some, live)
    return NO_VERSIONS if is_empty(both) else both


def _default(field: Field) -> Any:
    value = field.make_default()
    return "struct" if field.struct is not None and value == field.struct() else value


def _defined_default(field: Field, defined: dict[str, Any]) -> Any:
    """Read a default as Kafka does: the zero of the type where it is left out or JSON's null."""
    default = "" if defined.get("default") is None else defined["default"]
    if default == "null" or field.element == "Records":
        return None
    if field.is_array or field.element not in PRIMITIVES:
        return [] if field.is_array else "struct"
    return _READERS.get(field.element, _read_integer)(str(default))
