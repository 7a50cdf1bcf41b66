r"""Messages as JSON text in the format of Kafka's tools.

Kafka: the generated *JsonConverter classes and Jackson's JsonNode.toString. A tagged field with its
default is omitted, bytes are base64, UUIDs have 22 characters; there are no blanks.
"""

from __future__ import annotations

import re
from base64 import b64encode
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from ottla.config.definition import double_text
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.protocol.schema import Field, Struct

_ESCAPES = re.compile(r"\\(u[0-9a-f]{4}|.)")
# Names that do not follow from camel case.
_IRREGULAR = {"kraft_version": "kRaftVersion", "kraft_version_feature": "kRaftVersionFeature"}
_camel_case: dict[str, str] = {}


class RawJson(str):
    """Text that is already JSON."""

    __slots__ = ()


def message_json(
    message: Struct, version: int, replaced: Mapping[str, str] | None = None
) -> RawJson:
    """Write a message of a version; `replaced` holds JSON for top-level fields."""
    parts = []
    for field in type(message).fields:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        if replaced is not None and field.name in replaced:
            text = replaced[field.name]
        elif version in field.tagged and value == field.make_default():
            continue
        else:
            text = _field_json(value, field, version)
        parts.append(f'"{json_name(field.name)}":{text}')
    return RawJson("{" + ",".join(parts) + "}")


def _field_json(value: Any, field: Field, version: int) -> str:
    if value is None:
        return "null"
    if field.struct is None:
        return json_text(value)
    if field.is_array:
        return json_list(message_json(item, version) for item in value)
    return message_json(value, version)


def json_list(texts: Any) -> RawJson:
    """Write a list of values that are already JSON."""
    return RawJson("[" + ",".join(texts) + "]")


def json_name(name: str) -> str:
    """Return Kafka's spelling of a field's name: camel case."""
    known = _camel_case.get(name)
    if known is None:
        head, *rest = name.split("_")
        known = _IRREGULAR.get(name) or head + "".join(word.capitalize() for word in rest)
        _camel_case[name] = known
    return known


def json_text(value: Any) -> str:  # noqa: PLR0911 - one answer a kind of value
    """Write a string, number, boolean, bytes or UUID, or a list or map of them."""
    if value is None:
        return "null"
    if isinstance(value, RawJson):
        return value
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, Uuid):
        return f'"{value}"'
    if isinstance(value, dict):
        pairs = (f"{_string(name)}:{json_text(one)}" for name, one in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return json_list(json_text(item) for item in value)
    return f'"{b64encode(value).decode()}"'


def _string(text: str) -> str:
    written = encode_basestring(text)
    if "\\u" not in written:
        return written
    return _ESCAPES.sub(lambda found: found[0][:2] + found[0][2:].upper(), written)
