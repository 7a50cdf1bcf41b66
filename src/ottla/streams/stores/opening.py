"""Opens a store by its definition, with the serdes of values that have headers (KIP-1271).

Kafka: org.apache.kafka.streams.state.StoreBuilder, state.internals.{
ValueTimestampHeadersSerializer, AggregationWithHeadersSerializer}. The bytes of headers are this
project's own: there is no changelog that others read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ottla.formats.primitives import Packing
from ottla.streams.data.records import AggregationWithHeaders, ValueTimestampHeaders
from ottla.streams.data.serdes import LONG, Serde
from ottla.streams.stores.backend import LruBackend
from ottla.streams.stores.key_value import KeyValueStore, TimestampedKeyValueStore, VersionedStore
from ottla.streams.stores.windowed import SessionStore, WindowStore

if TYPE_CHECKING:
    from ottla.streams.config import StreamsConfig
    from ottla.streams.data.records import Header
    from ottla.streams.stores.backend import Backend
    from ottla.streams.stores.specs import StoreSpec


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


STORE_KINDS: Final[dict[str, Any]] = {
    "key-value": KeyValueStore,
    "window": WindowStore,
    "session": SessionStore,
    "versioned": VersionedStore,
}


def open_store(spec: StoreSpec, backend: Backend, config: StreamsConfig) -> Any:
    """Return the store of a definition; serdes that it does not name are the application's."""
    key = spec.key or config.default_key_serde
    value = spec.value or config.default_value_serde
    if spec.has_headers:
        is_timed = spec.has_timestamps and spec.kind != "session"
        value = with_headers(value, has_timestamps=is_timed)
        spec = replace(spec, has_timestamps=False, has_headers=False)
    if spec.kind == "key-value":
        if spec.max_entries is not None:
            backend = LruBackend(backend, spec.max_entries)
        kind = TimestampedKeyValueStore if spec.has_timestamps else KeyValueStore
        return kind(backend, key, value)
    full = replace(spec, key=key, value=value)
    return STORE_KINDS[spec.kind](backend, full)
