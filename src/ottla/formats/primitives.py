"""Kafka's encodings of text, numbers and truth values, and JSON.

Kafka: org.apache.kafka.common.serialization.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Packing(struct.Struct):
    """A fixed binary layout that can be pickled with the functions that use it."""

    def __reduce__(self) -> tuple[type[Packing], tuple[str]]:
        return Packing, (self.format,)


class Codec(NamedTuple):
    """Functions between values and bytes."""

    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


class _Number:
    """Reads the number of a layout; a class, since workers get it pickled."""

    def __init__(self, packing: Packing) -> None:
        self._packing = packing

    def __call__(self, data: bytes) -> Any:
        return self._packing.unpack(data)[0]


def write_json(value: Any) -> bytes:
    """Return a document without spaces, in UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _number(layout: str) -> Codec:
    packing = Packing(layout)
    return Codec(packing.pack, _Number(packing))


NUMBERS: Final = {
    "short": _number(">h"),
    "integer": _number(">i"),
    "long": _number(">q"),
    "float": _number(">f"),
    "double": _number(">d"),
}
