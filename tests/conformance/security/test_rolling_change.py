"""A cluster goes from PLAINTEXT to SASL_SSL, node by node, under load, without a failed request."""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Consumer, Producer
from ottla.clients.admin.topics import NewTopic
from ottla.testing.cluster import Cluster
from tests.ports import free_ports
from tests.server.security.certificates import Authority
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]
NODES = (1, 2, 3)
JAAS = 'a.Plain required username="node" password="n" user_node="n" user_alice="a";'
TOPIC = "orders"


class Load:
    """Sends records until it ends; keeps what was acknowledged, and what failed."""

    def __init__(self, client: dict[str, Any]) -> None:
        self._client = client
        self._ends = threading.Event()
        self.sent: list[Any] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with Producer(**self._client, acks="all") as producer:
            while not self._ends.wait(0.01):
                value = b"%d" % len(self.sent)
                self.sent.append(producer.send(TOPIC, value, partition=len(self.sent) % 3))

    def end(self) -> int:
        """Wait for all records; return their number. Raises what failed."""
        self._ends.set()
        self.thread.join(WAIT_S)
        return sum(one.result(WAIT_S).offset >= 0 for one in self.sent)


def secured(path: Path) -> dict[str, str]:
    """Return the settings that the new listener needs."""
    authority = Authority()
    (path / "ca.pem").write_text(authority.pair.certificate_pem)
    return {
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT,QUORUM:SASL_SSL"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER,QUORUM",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": JAAS,
        "listener.name.quorum.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("node").write_pem(path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(path / "ca.pem"),
    }


def in_sync(cluster: Cluster) -> bool:
    """Whether all replicas of the topic are, as the active controller's node sees it."""
    leader = cluster.controller_id
    if leader is None:
        return False
    partitions = cluster.run(
        lambda node: node.broker.image.topics.by_name[TOPIC].partitions, leader
    )
    return all(len(one.isr) == len(NODES) for one in partitions.values())


def roll(cluster: Cluster, changes: dict[str, str], listeners: Callable[[str], str]) -> None:
    """Start each node again with changed settings; wait until its replicas are in sync.

    listeners() changes the text of a node's listeners.
    """
    for number in NODES:
        node = cluster.node(number)
        node.config |= changes
        node.config["listeners"] = listeners(node.config["listeners"])
        cluster.restart(number)
        wait_for(lambda: in_sync(cluster))


def without_plaintext(listeners: str) -> str:
    """Return all but the old listeners."""
    return ",".join(
        one for one in listeners.split(",") if not one.startswith(("PLAINTEXT:", "CONTROLLER:"))
    )


def voters_have(cluster: Cluster, listener: str) -> bool:
    """Whether the quorum knows a listener of each controller."""

    def names(node: Any) -> list[set[str]]:
        voters = node.controller.quorum.voters
        return [{one.listener_name for one in voter.endpoints} for voter in voters]

    leader = cluster.controller_id
    return leader is not None and all(listener in one for one in cluster.run(names, leader))


def bootstrap(cluster: Cluster, listener: str) -> str:
    """Return the addresses of a listener."""
    found = [cluster.run(lambda node: node.addresses[listener], number) for number in NODES]
    return ",".join(f"{host}:{port}" for host, port in found)


def test_from_plaintext_to_sasl_ssl(tmp_path: Path) -> None:
    """Listeners come, nodes change to them, then clients; then the old listeners go."""
    ports = iter(free_ports(2 * len(NODES)))
    with Cluster(nodes=3) as cluster:
        plain: dict[str, Any] = {"bootstrap_servers": bootstrap(cluster, "PLAINTEXT")}
        with Admin(**plain) as admin:
            admin.create_topics([NewTopic(TOPIC, 3, 3)])
        old = Load(plain)
        new_ones = ",SECURE://127.0.0.1:{},QUORUM://127.0.0.1:{}"
        roll(
            cluster,
            secured(tmp_path),
            lambda text: text + new_ones.format(next(ports), next(ports)),
        )
        wait_for(lambda: voters_have(cluster, "QUORUM"))
        changed = {
            "inter.broker.listener.name": "SECURE",
            "controller.listener.names": "QUORUM,CONTROLLER",
            "controller.quorum.bootstrap.servers": bootstrap(cluster, "QUORUM"),
        }
        roll(cluster, changed, str)
        secure: dict[str, Any] = {
            "bootstrap_servers": bootstrap(cluster, "SECURE"),
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": "a",
            "ssl_truststore_location": str(tmp_path / "ca.pem"),
        }
        new = Load(secure)
        count = old.end()
        only = {
            "listener.security.protocol.map": "SECURE:SASL_SSL,QUORUM:SASL_SSL",
            "controller.listener.names": "QUORUM",
        }
        roll(cluster, only, without_plaintext)
        wait_for(lambda: not voters_have(cluster, "CONTROLLER"))
        with Admin(**secure) as admin:  # through the controllers' new listener
            admin.create_topics([NewTopic("after", 1, 3)])
        count += new.end()
        with Consumer(TOPIC, **secure, auto_offset_reset="earliest", group_id="g") as consumer:
            read = {(one.partition, one.offset) for one in islice(consumer, count)}
    assert count > 100
    assert len(read) == count
