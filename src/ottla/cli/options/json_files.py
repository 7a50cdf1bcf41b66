"""JSON files that flags name, with Kafka's error messages.

Kafka: org.apache.kafka.server.util.Json, org.apache.kafka.server.util.json.DecodeJson.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ottla.cli.output.failures import ToolError


def read_json(path: str) -> Any:
    """Read a JSON file; raises ToolError with Kafka's text."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"Unable to read file {path}") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ToolError("The input string is not a valid JSON") from error


def json_object(value: Any) -> dict[str, Any]:
    """Return a JSON object; raises ToolError with Kafka's text for other values."""
    if not isinstance(value, dict):
        raise ToolError(f"Expected JSON object, received {_json(value)}")
    return value


def json_array(value: Any) -> list[Any]:
    """Return a JSON array; raises ToolError with Kafka's text for other values."""
    if not isinstance(value, list):
        raise ToolError(f"Expected JSON array, received {_json(value)}")
    return value


def json_field(value: Any, name: str) -> Any:
    """Return a field of a JSON object; raises ToolError with Kafka's text if it is missing."""
    if name not in json_object(value):
        raise ToolError(f"No such field exists: `{name}`")
    return value[name]


def json_string(value: Any, name: str) -> str:
    """Return a string field; raises ToolError with Kafka's text for other values."""
    found = json_field(value, name)
    if not isinstance(found, str):
        raise ToolError(f"Expected `String` value, received {_json(found)}")
    return found


def json_number(value: Any, name: str, bits: int) -> int:
    """Return an integer field of 32 or 64 bits; raises ToolError with Kafka's text."""
    found = json_field(value, name)
    limit = 1 << (bits - 1)
    is_whole = isinstance(found, int) and not isinstance(found, bool)
    if not is_whole or not -limit <= found < limit:
        kind = "Integer" if bits == 32 else "Long"
        raise ToolError(f"Expected `{kind}` value, received {_json(found)}")
    number: int = found
    return number


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
