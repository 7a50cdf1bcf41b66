"""Ottla: Apache Kafka's system in Python. `import ottla` loads nothing until a name is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ottla._version import __version__

_EXPORTS = {
    "Admin": "ottla.clients.blocking",
    "AsyncAdmin": "ottla.clients.admin.admin",
    "AsyncConsumer": "ottla.clients.consumer.consumer",
    "AsyncProducer": "ottla.clients.producer.producer",
    "Consumer": "ottla.clients.blocking",
    "Producer": "ottla.clients.blocking",
    "RebalanceListener": "ottla.clients.consumer.core",
    "TopicPartition": "ottla.types",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "Producer",
    "RebalanceListener",
    "TopicPartition",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import the module behind a public name on first use (PEP 562)."""
    try:
        module = _EXPORTS[name]
    except KeyError:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}") from None
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    """List the public names without importing them."""
    return sorted(__all__)
