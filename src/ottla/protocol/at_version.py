"""Rules of one message version for each field, used by both codecs.

Kafka: org.apache.kafka.message.{VersionConditional, FieldSpec}.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.protocol.schema import Field, StructMeta

FIXED = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "Uuid": "16s",
}
"""Elements of fixed size, with their `struct` codes."""


class AtVersion:
    """The rules of one version of a message and its structs."""

    def __init__(self, cls: StructMeta, version: int) -> None:
        self.version = version
        self.flexible = version in cls.flexible

    def is_flexible(self, field: Field) -> bool:
        """Whether lengths are varints."""
        return self.flexible and (field.flexible is None or self.version in field.flexible)

    def is_nullable(self, field: Field) -> bool:
        """Whether the field may be null."""
        return self.version in field.nullable

    def carries(self, field: Field) -> bool:
        """Whether the version has the field."""
        return self.version in field.versions

    def is_tagged(self, field: Field) -> bool:
        """Whether the field is among the tagged ones."""
        return self.flexible and field.tag is not None and self.version in field.tagged

    def smallest_size(self, field: Field) -> int:
        """Return the minimum size of an element, which bounds an announced array length."""
        if field.struct is not None:
            return max(1, self._smallest_struct(field.struct))
        return _smallest_scalar(field.element, compact=self.is_flexible(field))

    def _smallest_struct(self, cls: StructMeta) -> int:
        carried = (f for f in cls.fields if self.carries(f) and not self.is_tagged(f))
        return (1 if self.flexible else 0) + sum(self._smallest_field(one) for one in carried)

    def _smallest_field(self, field: Field) -> int:
        compact = self.is_flexible(field)
        if field.is_array:
            return 1 if compact else 4
        if field.struct is not None:
            return 1 if self.is_nullable(field) else self._smallest_struct(field.struct)
        return _smallest_scalar(field.element, compact=compact)


def _smallest_scalar(kind: str, *, compact: bool) -> int:
    if kind in FIXED:
        return struct.calcsize(">" + FIXED[kind])
    if compact:
        return 1
    return 2 if kind == "str" else 4
