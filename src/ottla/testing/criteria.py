"""Criteria for the records that a test expects.

Kafka: none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import EllipsisType

    from ottla.clients.consumer.record_decoder import ConsumerRecord

Data: TypeAlias = bytes | bytearray | memoryview | str | None
"""A key or a value; None is null."""


class Criteria:
    """Criteria of a record; `...` matches any. Values other than bytes, str and None are JSON."""

    def __init__(
        self,
        *,
        key: bytes | str | int | EllipsisType | None,
        value: object,
        headers: Mapping[str, bytes | str | None] | None,
        where: Callable[[ConsumerRecord], bool] | None,
    ) -> None:
        self._key = str(key) if isinstance(key, int) else key
        self._value = value
        self._headers = headers or {}
        self._where = where

    def match(self, record: ConsumerRecord) -> bool:
        """Whether a record meets all criteria."""
        return (
            _equal(self._key, record.key)
            and _equal(self._value, record.value)
            and all(
                (name, as_bytes(data)) in record.headers for name, data in self._headers.items()
            )
            and (self._where is None or self._where(record))
        )

    def __str__(self) -> str:
        shown = [
            f"{name} {given!r}"
            for name, given in (("key", self._key), ("value", self._value))
            if given is not ...
        ]
        shown += [f"header {name!r}: {data!r}" for name, data in self._headers.items()]
        if self._where is not None:
            shown.append(f"`where` {getattr(self._where, '__name__', self._where)}")
        return f" with {', '.join(shown)}" if shown else ""


def as_bytes(value: Data) -> bytes | None:
    """Return the bytes that are sent."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else bytes(value)


def _equal(expected: object, found: bytes | None) -> bool:
    if expected is ... or expected == found:
        return True
    if expected is None or isinstance(expected, bytes) or found is None:
        return False
    if isinstance(expected, str):
        return expected.encode() == found
    try:
        return bool(json.loads(found) == expected)
    except ValueError:
        return False
