"""Topics as tables: Arrow record batches straight from segment files, or from running brokers.

    from ottla import tables
    orders = tables.scan("orders", data_dirs="ottla-data", value="json")
    duckdb.sql("select count(*) from orders")

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.tables.table_scan import Scan, scan
    from ottla.tables.values import Avro, Json, Protobuf

__all__ = ["Avro", "Json", "Protobuf", "Scan", "scan"]
_MODULES = {"Scan": "table_scan", "scan": "table_scan"}


def __getattr__(name: str) -> Any:
    """Load a public name, and with it pyarrow, on first access."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"ottla.tables.{_MODULES.get(name, 'values')}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ottla"):
            raise
        text = f"{error}: ottla.tables needs pip install '.[tables]' in Ottla's source tree"
        raise ModuleNotFoundError(text, name=error.name, path=error.path) from error
