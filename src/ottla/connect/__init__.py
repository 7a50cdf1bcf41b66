"""Kafka Connect: data in and out of topics by connectors, whose volume runs as Spark work.

`data` and `records` are the values that connectors, transforms and converters exchange; `connector`
is the contract of connectors, `simple` the short one (`Source`, `Sink`). The runtime finds
plug-ins, runs tasks and serves the REST API.

Kafka: org.apache.kafka.connect.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.connect.simple import Record, Sink, Source

__all__ = ["PLUGIN_VERSION", "Record", "Sink", "Source"]

PLUGIN_VERSION: Final = "4.3.0"
"""The version of the plug-ins that Kafka brings, which configurations may ask for (KIP-891)."""

if not TYPE_CHECKING:  # a misspelt name is an error for type checkers, too

    def __getattr__(name: str) -> Any:
        """Import the contract of connectors on first use: a worker's parts import this package."""
        if name not in {"Record", "Sink", "Source"}:
            raise AttributeError(f"module 'ottla.connect' has no attribute {name!r}")
        return getattr(import_module("ottla.connect.simple"), name)
