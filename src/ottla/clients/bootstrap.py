"""Bootstrap addresses, and the error for an unreachable cluster.

Kafka: org.apache.kafka.clients.ClientUtils.parseAndValidateAddresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.types import Node

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_PORT = 9092


def parse_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT, [V6]:PORT or PROTOCOL://HOST:PORT; raise ConfigError."""
    address = text.rpartition("://")[2].strip()
    host, colon, port = address.rpartition(":")
    if not colon or host.endswith(":") or (":" in host and not host.startswith("[")):
        host, port = address, str(DEFAULT_PORT)
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"bootstrap.servers: {text!r} is not HOST:PORT; for example localhost:9092",
        )
    return host, int(port)


def bootstrap_nodes(servers: Iterable[str]) -> list[Node]:
    """Return the bootstrap servers as nodes, with ids from -1 downwards."""
    nodes = [Node(-1 - index, *parse_address(text)) for index, text in enumerate(servers)]
    if not nodes:
        raise ConfigError(
            "bootstrap.servers is empty; for example bootstrap_servers='localhost:9092'",
        )
    return nodes


def unreachable(nodes: Iterable[Node], reason: str = "") -> KafkaError:
    """Return the error for a cluster that cannot be reached."""
    places = ", ".join(f"{node.host}:{node.port}" for node in nodes)
    why = f" ({reason})" if reason else ""
    return KafkaError(
        ErrorCode.BROKER_NOT_AVAILABLE,
        f"cannot reach {places}{why}: is a broker running there? "
        "Start one with `ottla server-start`, or correct bootstrap_servers",
    )
