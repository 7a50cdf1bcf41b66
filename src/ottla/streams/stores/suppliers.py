"""The form of stores of the DSL for which an operator names none.

Kafka: org.apache.kafka.streams.state.{DslStoreSuppliers, BuiltInDslStoreSuppliers} (KIP-591,
KIP-954). Spark's state store keeps all of them: what is chosen is the form, not the place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ottla.streams.errors import TopologyException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.streams.stores.specs import StoreSpec


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
