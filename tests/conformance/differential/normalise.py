"""Answers as plain data, less what two sound nodes may say differently: ids, times, ports, paths.

Kafka: none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ottla.types import Uuid

if TYPE_CHECKING:
    from ottla.protocol.schema import Struct

_HEX_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NAMED_ID = re.compile(r"(directoryId=|cluster id \")[\w-]{22}")
_TIME_RANGE = re.compile(r"within \[-?\d+, -?\d+\]")  # moves with the clock
_FIRST_TIME_MS = 1_750_000_000_000  # later than every timestamp that the cases produce
_LAST_TIME_MS = 5_000_000_000_000
# numbers that each node draws: the sign says whether there is one
_DRAWN = frozenset({"session_id", "producer_id"})
_MASKED = frozenset(
    {
        "throttle_time_ms",
        "port",
        "subscription_id",
        "usable_bytes",
        "total_bytes",
        "finalized_features_epoch",
    }
)


class Normaliser:
    """Turns one node's answers into nested dicts, lists and scalars that can be compared."""

    def __init__(self, ports: dict[str, int], log_dir: str) -> None:
        self.cluster_id = ""
        self._texts = {log_dir: "<log dir>"}
        for listener, port in ports.items():
            self._texts[str(port)] = f"<{listener} port>"

    def __call__(self, response: Struct | str, version: int) -> Any:
        """Return an answer's fields of that version; a str (no answer) as it is."""
        if isinstance(response, str):
            return response
        return {
            field.name: self._field(field.name, getattr(response, field.name), version)
            for field in type(response).fields
            if version in field.versions or version in field.tagged
        }

    def _field(self, name: str, value: Any, version: int) -> Any:
        if name in _MASKED:
            return f"<{name}>"
        if name in _DRAWN:
            return "<drawn>" if value > 0 or (value == 0 and name == "producer_id") else value
        if name == "cluster_id" and value:
            return "<cluster>"
        return self._value(value, version)

    def _value(self, value: Any, version: int) -> Any:
        if isinstance(value, Uuid):
            return "<uuid>" if any(value) else "<zero uuid>"
        if isinstance(value, bytes | memoryview):
            return bytes(value).hex()
        if isinstance(value, list):
            return [self._value(one, version) for one in value]
        return self._scalar(value) if _is_scalar(value) else self(value, version)

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        is_time = isinstance(value, int) and _FIRST_TIME_MS < value < _LAST_TIME_MS
        return "<time>" if is_time else value

    def text(self, text: str) -> str:
        """Return a text less ids, paths and ports."""
        text = _TIME_RANGE.sub("within <range>", text)  # a port's digits may be in its numbers
        for own, name in self._texts.items():
            text = text.replace(own, name)
        return _HEX_UUID.sub("<uuid>", _NAMED_ID.sub(r"\1<uuid>", text))


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the scalars of nested data by path; an empty list or dict stands for itself."""
    if isinstance(value, dict) and value:
        found: dict[str, Any] = {}
        for name, inner in value.items():
            found |= flat(inner, f"{path}.{name}" if path else name)
        return found
    if isinstance(value, list) and value:
        found = {}
        for number, inner in enumerate(value):
            found |= flat(inner, f"{path}[{number}]")
        return found
    return {path: value}
