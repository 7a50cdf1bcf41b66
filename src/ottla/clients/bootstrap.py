"""Bootstrap addresses, and the error for an unreachable cluster.

Kafka: org.apache.kafka.clients.ClientUtils.parseAndValidateAddresses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.errors import ConfigError, TimeoutError  # noqa: A004 - Kafka's, also a builtin one
from ottla.types import Node

if TYPE_CHECKING:
    from collections.abc import Iterable

_ADDRESS = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]+?)\]?:([0-9]{1,9})")


def parse_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT, [V6]:PORT or PROTOCOL://HOST:PORT; raise ConfigError."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"Invalid url in bootstrap.servers: {text}")
    host, port = found[1], int(found[2])
    if not 0 < port < 65536:
        raise ConfigError(f"Invalid port in bootstrap.servers: {text}")
    return host, port


def bootstrap_nodes(servers: Iterable[str]) -> list[Node]:
    """Return the bootstrap servers as nodes, with ids from -1 downwards."""
    nodes = [Node(-1 - index, *parse_address(text)) for index, text in enumerate(servers)]
    if not nodes:
        raise ConfigError(
            "bootstrap.servers is empty; for example bootstrap_servers='localhost:9092'",
        )
    return nodes


def unreachable(nodes: Iterable[Node], reason: str = "") -> TimeoutError:
    """Return the error for a cluster that cannot be reached."""
    places = ", ".join(f"{node.host}:{node.port}" for node in nodes)
    why = f" ({reason})" if reason else ""
    return TimeoutError(f"cannot reach {places}{why}")
