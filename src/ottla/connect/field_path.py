"""The path to a field, also of a nested one: `a.b`, and `` `a.b`.c `` where names have dots.

Kafka: org.apache.kafka.connect.transforms.field.SingleFieldPath (KIP-821).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.config.problems import ConfigErrors, ConfigProblem
from ottla.connect.transforms import require_map, require_struct

if TYPE_CHECKING:
    from ottla.connect.data import Field, Schema, Struct

_PURPOSE = "nested field access"


class FieldPath:
    """The names from the outermost struct or dict to a field."""

    def __init__(self, text: str, *, is_nested: bool) -> None:
        """Split a text at its dots if it is nested; ConfigErrors for an open backtick."""
        self.names = (_split(text) if is_nested else [text]) or [""]

    def in_schema(self, schema: Schema) -> Field | None:
        """Return the field, None without one; DataException where a parent is no struct."""
        for name in self.names[:-1]:
            field = schema.field(name)
            if field is None:
                return None
            schema = field.schema
        return schema.field(self.names[-1])

    def in_struct(self, value: Struct, *, with_default: bool) -> Any:
        """Return the field's value, None where a parent has none."""
        current: Any = value
        for name in self.names[:-1]:
            if current.schema.field(name) is None:
                return None
            current = current[name]
            if current is None:
                return None
            require_struct(current, _PURPOSE)
        last = self.names[-1]
        if current.schema.field(last) is None:
            return None
        return current[last] if with_default else current.without_default(last)

    def in_map(self, value: dict[str, Any]) -> Any:
        """Return the value in dicts, None where a parent has none."""
        current: Any = value
        for name in self.names[:-1]:
            current = current.get(name)
            if current is None:
                return None
            require_map(current, _PURPOSE)
        return current.get(self.names[-1])


def _split(path: str) -> list[str]:
    names: list[str] = []
    index = 0
    while index < len(path):
        if path[index] == "`":
            name, index = _quoted(path, index)
        else:
            name, dot, _ = path[index:].partition(".")
            index += len(name) + len(dot)
        names.append(name)
    if path.endswith("."):
        names.append("")
    return names


def _quoted(path: str, begin: int) -> tuple[str, int]:
    """Return the name that a backtick begins, and the position after its end and the next dot."""
    parts: list[str] = []
    start = index = begin + 1
    while True:
        index = path.find("`", index)
        is_escaped = path[index - 1] == "\\"
        is_last = index >= len(path) - 1
        if index < 0 or (is_last and is_escaped):
            raise ConfigErrors(
                [
                    ConfigProblem(
                        "field",
                        path,
                        f"Incomplete backtick pair in path: [{path}], consider adding a backslash "
                        f"before backtick at position {begin} to escape it",
                    )
                ]
            )
        if is_last:
            return "".join([*parts, path[start:index]]), index + 1
        if path[index + 1] != ".":
            index += 1
        elif is_escaped:
            parts.append(path[start : index - 1] + "`")
            index += 1
            start = index
        else:
            return "".join([*parts, path[start:index]]), index + 2
