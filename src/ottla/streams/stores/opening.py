"""Opens a store by its definition.

Kafka: org.apache.kafka.streams.state.StoreBuilder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ottla.streams.stores.key_value import KeyValueStore, TimestampedKeyValueStore
from ottla.streams.stores.lru import LruBackend
from ottla.streams.stores.session import SessionStore
from ottla.streams.stores.versioned import VersionedStore
from ottla.streams.stores.window import WindowStore
from ottla.streams.stores.with_headers import with_headers

if TYPE_CHECKING:
    from ottla.streams.config import StreamsConfig
    from ottla.streams.stores.backend import Backend
    from ottla.streams.stores.specs import StoreSpec


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
