"""Limits of connections: clients use up their own share, never that of the other nodes."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ottla import Admin
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.testing.cluster import Cluster
from tests.server.requests.untrusted_clients import Peer
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 8
CONFIG = {
    "listeners": "CLIENTS://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
}


def opened(stack: ExitStack, cluster: Cluster, listener: str) -> Iterator[socket.socket]:
    """Open connections to a listener."""
    address = cluster.run(lambda node: node.addresses[listener])
    while True:
        yield stack.enter_context(socket.create_connection(address, 30))


def is_served(cluster: Cluster, listener: str) -> bool:
    """Whether a new connection to a listener is answered."""
    peer = Peer(":".join(map(str, cluster.run(lambda node: node.addresses[listener]))))
    try:
        return bool(peer.ask(ApiVersionsRequest(), 0).api_keys)
    finally:
        peer.close()


def counts(cluster: Cluster) -> dict[str, int]:
    """Return the open connections by listener."""

    def count(node: Any) -> dict[str, int]:
        return {one.name: len(one.connections) for one in node._listeners.open}

    return cluster.run(count)


def test_idle_clients_do_not_shut_out_nodes() -> None:
    """With max.connections used up the other brokers and the quorum are still accepted."""
    with Cluster(config={**CONFIG, "max.connections": str(LIMIT)}) as cluster, ExitStack() as stack:
        clients = opened(stack, cluster, "CLIENTS")
        for _ in range(2 * LIMIT):
            next(clients)
        wait_for(lambda: sum(counts(cluster).values()) >= LIMIT)
        for _ in range(2):
            assert is_served(cluster, "INSIDE")
            assert is_served(cluster, "CONTROLLER")


def test_a_lowered_limit_closes_clients_only() -> None:
    """Connections between nodes stay when max.connections falls below their number."""
    with Cluster(config=CONFIG) as cluster, ExitStack() as stack:
        for name in ("INSIDE", "CONTROLLER", "CLIENTS"):
            made = opened(stack, cluster, name)
            for _ in range(5):
                next(made)
        wait_for(lambda: sum(counts(cluster).values()) >= 15)
        before = counts(cluster)
        inside = ":".join(map(str, cluster.run(lambda node: node.addresses["INSIDE"])))
        with Admin(bootstrap_servers=inside) as admin:
            admin.alter_configs({ConfigResource(ResourceType.BROKER, "1"): {"max.connections": 5}})
            wait_for(lambda: counts(cluster)["CLIENTS"] == 0)
        after = counts(cluster)
        assert after["INSIDE"] >= before["INSIDE"]
        assert after["CONTROLLER"] >= before["CONTROLLER"]
