"""Answers as plain data, less what two sound nodes may say differently: ids, times, ports, paths.

Kafka: none.

The id of a topic that a case named is written as that name, so that answers which hold ids in place
of names still say which topic is meant.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ottla.types import Uuid

if TYPE_CHECKING:
    from ottla.protocol.schema import Struct

_HEX_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NAMED_ID = re.compile(r"(directoryId=|cluster id \")[\w-]{22}")
_VOTERS = re.compile(r"set of voters \[(.*?\))\]")  # in the order of a hash map
_TIME_RANGE = re.compile(r"within \[-?\d+, -?\d+\]")  # moves with the clock
_FIRST_TIME_MS = 1_750_000_000_000  # later than every timestamp that the cases produce
_LAST_TIME_MS = 5_000_000_000_000
# numbers that each node draws: the sign says whether there is one
_DRAWN = frozenset({"session_id", "producer_id", "broker_epoch", "producer_id_start"})
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


def number(value: int | str) -> re.Pattern[str]:
    """Return a pattern of a whole number: its digits may be part of a larger one."""
    return re.compile(rf"(?<!\d){value}(?!\d)")


class Normaliser:
    """Turns one node's answers into nested dicts, lists and scalars that can be compared."""

    def __init__(self, ports: dict[str, int], log_dir: str) -> None:
        self.topic_names: dict[Uuid, str] = {}
        self.texts = [(re.compile(re.escape(log_dir)), "<log dir>")]
        for listener, port in ports.items():
            self.texts.append((number(port), f"<{listener} port>"))

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
            return self._uuid(value)
        if isinstance(value, bytes | memoryview):
            return bytes(value).hex()
        if isinstance(value, list):
            return [self._value(one, version) for one in value]
        return self._scalar(value) if _is_scalar(value) else self(value, version)

    def _uuid(self, value: Uuid) -> str:
        if not any(value):
            return "<zero uuid>"
        return f"<id of {self.topic_names[value]}>" if value in self.topic_names else "<uuid>"

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        is_time = isinstance(value, int) and _FIRST_TIME_MS < value < _LAST_TIME_MS
        return "<time>" if is_time else value

    def text(self, text: str) -> str:
        """Return a text less ids, paths and ports."""
        text = _TIME_RANGE.sub("within <range>", text)
        for own, name in self.texts:
            text = own.sub(name, text)
        text = _HEX_UUID.sub("<uuid>", _NAMED_ID.sub(r"\1<uuid>", text))
        return _VOTERS.sub(
            lambda found: f"set of voters {sorted(found[1][:-1].split('), '))}", text
        )


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
