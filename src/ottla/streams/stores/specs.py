"""Definitions of stores: their kind, serdes and form.

Kafka: org.apache.kafka.streams.state.{Stores, StoreBuilder}.

Where an operator names no form of its store the suppliers choose one (KIP-591, KIP-954). Spark's
state store keeps all of them: the form is chosen, not the place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ottla.streams.data.windows import Duration, milliseconds
from ottla.streams.errors import TopologyException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.streams.data.serdes import Serde


@dataclass(frozen=True)
class StoreSpec:
    """A store of a topology: its kind (key-value, window, session, versioned, buffer) and form."""

    name: str
    kind: str
    key: Serde | None = None
    value: Serde | None = None
    retention_ms: int = 0
    window_size_ms: int = 0
    has_duplicates: bool = False
    has_timestamps: bool = True
    is_time_ordered: bool = False
    max_entries: int | None = None
    has_headers: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for a negative number of entries, or windows with headers alone."""
        if self.kind == "window" and self.has_headers and not self.has_timestamps:
            raise ValueError(f"the window store {self.name} has headers, but no timestamps")
        if self.max_entries is not None and self.max_entries < 0:
            raise ValueError("max_entries cannot be negative")


class Stores:
    """Definitions of stores for `add_state_store`."""

    @staticmethod
    def key_value(name: str, key: Serde, value: Serde) -> StoreSpec:
        """Return a store of values by key."""
        return StoreSpec(name, "key-value", key, value, has_timestamps=False)

    @staticmethod
    def lru_map(name: str, key: Serde, value: Serde, *, max_entries: int) -> StoreSpec:
        """Return a store of values by key, in each task those that were used most recently.

        Gets and puts are uses. What is dropped is dropped without a word; the order of uses lasts
        over restarts.
        """
        return StoreSpec(
            name, "key-value", key, value, has_timestamps=False, max_entries=max_entries
        )

    @staticmethod
    def timestamped_key_value(
        name: str, key: Serde, value: Serde, *, has_headers: bool = False
    ) -> StoreSpec:
        """Return a store of values with timestamps, or with both and headers, by key."""
        return StoreSpec(name, "key-value", key, value, has_headers=has_headers)

    @staticmethod
    def window(
        name: str,
        key: Serde,
        value: Serde,
        *,
        retention: Duration,
        size: Duration,
        retain_duplicates: bool = False,
        has_timestamps: bool = False,
        has_headers: bool = False,
    ) -> StoreSpec:
        """Return a store of values, with timestamps and headers, by key and start of a window."""
        return StoreSpec(
            name,
            "window",
            key,
            value,
            retention_ms=milliseconds(retention),
            window_size_ms=milliseconds(size),
            has_duplicates=retain_duplicates,
            has_timestamps=has_timestamps,
            has_headers=has_headers,
        )

    @staticmethod
    def session(
        name: str, key: Serde, value: Serde, *, retention: Duration, has_headers: bool = False
    ) -> StoreSpec:
        """Return a store of values, or values with headers, by key and session."""
        return StoreSpec(
            name,
            "session",
            key,
            value,
            retention_ms=milliseconds(retention),
            has_headers=has_headers,
        )

    @staticmethod
    def versioned_key_value(name: str, key: Serde, value: Serde, *, history: Duration) -> StoreSpec:
        """Return a store that also answers as of an earlier time."""
        return StoreSpec(name, "versioned", key, value, retention_ms=milliseconds(history))


class DslStoreSuppliers:
    """Chooses the form of stores; each method returns the definition that it gets, or another one.

    Only `max_entries` of a key-value store may be another: all else the operator needs as it is.
    """

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Take the application's settings, by Kafka's names."""

    def key_value_store(self, spec: StoreSpec) -> StoreSpec:
        """Return the store of a table, or of an aggregation without windows."""
        return spec

    def window_store(self, spec: StoreSpec) -> StoreSpec:
        """Return the store of windows, or of a side of a join of streams."""
        return spec

    def session_store(self, spec: StoreSpec) -> StoreSpec:
        """Return the store of sessions."""
        return spec


class RocksDBDslStoreSuppliers(DslStoreSuppliers):
    """Kafka's stores on disk."""


class InMemoryDslStoreSuppliers(DslStoreSuppliers):
    """Kafka's stores in memory; here they are the same as those on disk."""


class BuiltInDslStoreSuppliers:
    """Kafka's own, also those of `Materialized.StoreType`."""

    ROCKS_DB: Final = RocksDBDslStoreSuppliers()
    IN_MEMORY: Final = InMemoryDslStoreSuppliers()


def supplied(suppliers: DslStoreSuppliers, spec: StoreSpec) -> StoreSpec:
    """Return a store in the form that is chosen; TopologyException for another store."""
    methods = {
        "key-value": suppliers.key_value_store,
        "window": suppliers.window_store,
        "session": suppliers.session_store,
    }
    found = methods[spec.kind](spec)
    is_bound = spec.kind == "key-value"
    same = replace(found, max_entries=spec.max_entries) if is_bound else found
    if same != spec:
        raise TopologyException(
            f"{type(suppliers).__name__} returns another store for {spec.name}: only max_entries "
            "of a key-value store may be chosen"
        )
    return found
