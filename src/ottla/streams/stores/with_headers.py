"""The values of stores that keep headers: a value, or an aggregation, with those of its record.

Kafka: org.apache.kafka.streams.state.internals.{ValueTimestampHeadersSerializer,
AggregationWithHeadersSerializer} (KIP-1271). The bytes are this project's own: there is no
changelog that others read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.formats.primitives import Packing
from ottla.streams.records import AggregationWithHeaders, ValueTimestampHeaders
from ottla.streams.serdes import LONG, Serde

if TYPE_CHECKING:
    from ottla.streams.records import Header

_COUNT: Final = Packing(">i")
_NONE: Final = -1
"""The length of a header without a value."""


def with_headers(value: Serde, *, has_timestamps: bool) -> Serde:
    """Return the serde of values with timestamps and headers, or of aggregations with headers."""
    return _with_timestamps(value) if has_timestamps else _without_timestamps(value)


def _with_timestamps(value: Serde) -> Serde:
    def write(one: ValueTimestampHeaders) -> bytes | None:
        data = value.serialize(one.value)
        return None if data is None else _packed(one.headers) + LONG.pack(one.timestamp) + data

    def read(data: bytes) -> ValueTimestampHeaders:
        headers, at = _unpacked(data)
        (timestamp,) = LONG.unpack_from(data, at)
        return ValueTimestampHeaders(value.deserialize(data[at + 8 :]), timestamp, headers)

    return Serde(f"headers {value.name}", write, read)


def _without_timestamps(value: Serde) -> Serde:
    def write(one: AggregationWithHeaders) -> bytes | None:
        data = value.serialize(one.aggregation)
        return None if data is None else _packed(one.headers) + data

    def read(data: bytes) -> AggregationWithHeaders:
        headers, at = _unpacked(data)
        return AggregationWithHeaders(value.deserialize(data[at:]), headers)

    return Serde(f"headers {value.name}", write, read)


def _packed(headers: tuple[Header, ...]) -> bytes:
    parts = [_COUNT.pack(len(headers))]
    for name, data in headers:
        text = name.encode()
        parts += [_COUNT.pack(len(text)), text]
        parts += [_COUNT.pack(_NONE)] if data is None else [_COUNT.pack(len(data)), data]
    return b"".join(parts)


def _unpacked(data: bytes) -> tuple[tuple[Header, ...], int]:
    """Return headers, and where they end."""
    (count,) = _COUNT.unpack_from(data)
    found: list[Header] = []
    at = _COUNT.size
    for _ in range(count):
        name, at = _part(data, at)
        value, at = _part(data, at)
        found.append(((name or b"").decode(), value))
    return tuple(found), at


def _part(data: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = _COUNT.unpack_from(data, at)
    start = at + _COUNT.size
    end = start + max(length, 0)
    return (None if length == _NONE else data[start:end]), end
