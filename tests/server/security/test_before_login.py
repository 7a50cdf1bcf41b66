"""Limits before the login: half-open handshakes and silent clients do not keep users out."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.clients.admin.quotas import QuotaChange
from ottla.network.limits import PendingLogins, pending_limit
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.security.jaas import parse_jaas
from ottla.security.principal import ANONYMOUS
from ottla.testing.cluster import Cluster
from tests.server.requests.untrusted_clients import Peer
from tests.server.security.certificates import Authority
from tests.waits import wait_for

if TYPE_CHECKING:
    from pathlib import Path

JAAS = 'a.Plain required user_alice="a";'
NAME = "listener.name.login.plain.sasl.jaas.config"
MOST = 6
HELLO = bytes.fromhex("16030102000100")
"""The begin of a TLS handshake."""


class Held:
    """A connection of a table."""

    def __init__(self, peer_host: str = "10.0.0.1") -> None:
        self.is_closed = False
        self.peer_host = peer_host

    def close(self) -> None:
        self.is_closed = True


def test_the_oldest_is_closed_first() -> None:
    """Ended ones and those that have logged in do not count."""
    pending, held = PendingLogins(3), [Held() for _ in range(6)]
    for one in held[:3]:
        pending.add(one)
    pending.discard(held[0])
    held[1].close()
    for one in held[3:5]:
        pending.add(one)
    assert [one.is_closed for one in held] == [False, True, False, False, False, False]
    pending.add(held[5])
    assert [one.is_closed for one in held] == [False, True, True, False, False, False]
    assert pending.dropped_count == 1


def test_a_flood_closes_its_own_connections() -> None:
    """Logins of other addresses go on, however old they are."""
    pending = PendingLogins(4)
    patient = [Held("10.0.0.2"), Held("10.0.0.3")]
    for one in patient:
        pending.add(one)
    flood = [Held() for _ in range(50)]
    for one in flood:
        pending.add(one)
    assert not any(one.is_closed for one in patient)
    assert [one.is_closed for one in flood] == [True] * 48 + [False] * 2
    for one in patient:
        pending.discard(one)
    assert pending.dropped_count == 48


@pytest.mark.parametrize(("descriptors", "most"), [(-1, 10_000), (100, 64), (65_536, 6553)])
def test_the_limit_follows_the_files_of_the_process(descriptors: int, most: int) -> None:
    """A tenth of them."""
    assert pending_limit(descriptors) == most


def test_a_flood_of_half_open_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many clients without a login few are kept of each listener; users log in meanwhile."""
    monkeypatch.setattr("ottla.server.node.security.pending_limit", lambda _descriptors: MOST)
    made: list[Any] = []
    config = {
        "listeners": "LOGIN://127.0.0.1:0,TLS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "TLS",
        "sasl.enabled.mechanisms": "PLAIN",
        NAME: JAAS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": Authority().issue("node").write_pem(tmp_path / "node.pem"),
    }
    with Cluster(config=config) as cluster, ExitStack() as opened:
        addresses = cluster.run(lambda node: dict(node.addresses))
        for name in ("TLS", "LOGIN") * (3 * MOST):
            one = opened.enter_context(socket.create_connection(addresses[name]))
            one.sendall(HELLO if name == "TLS" else bytes(3))
            made.append(one)
        for _ in range(3):
            with Admin(**as_user(cluster, "alice", "a")) as admin:
                admin.list_topics()
        wait_for(lambda: cluster.run(_open_count) <= 2 * MOST + 1)


def as_user(cluster: Cluster, user: str, password: str) -> dict[str, Any]:
    """Return a client's settings."""
    return {
        "bootstrap_servers": ":".join(map(str, cluster.run(lambda node: node.addresses["LOGIN"]))),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": user,
        "sasl_password": password,
    }


def _open_count(node: Any) -> int:
    return sum(len(listener.connections) for listener in node._listeners.open)


def test_the_policy_of_logins_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each connection; changed settings make it again."""
    parsed: list[str] = []

    def parse(text: str) -> Any:
        parsed.append(text)
        return parse_jaas(text)

    monkeypatch.setattr("ottla.server.node.login_handlers.parse_jaas", parse)
    config = {
        "listeners": "LOGIN://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": (
            "LOGIN:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": "PLAIN",
        NAME: JAAS,
    }
    with Cluster(config=config) as cluster:
        with Admin(**as_user(cluster, "alice", "a")) as admin:
            admin.list_topics()
        before = len(parsed)
        for _ in range(5):
            with socket.create_connection(cluster.run(lambda node: node.addresses["LOGIN"])) as one:
                one.sendall(b"\0\0\0\2ab")
                assert not one.recv(1)
        assert len(parsed) == before
        changed = ConfigResource(ResourceType.BROKER, "1")
        value = JAAS.replace(";", ' user_bob="b";')
        with Admin(**as_user(cluster, "alice", "a")) as admin:
            admin.alter_configs({changed: {NAME: value}})
        wait_for(lambda: len(parsed) > before)
        with Admin(**as_user(cluster, "bob", "b")) as admin:
            admin.list_topics()


def test_requests_before_a_login_are_of_no_user() -> None:
    """A quota of everybody is not used up by ApiVersions before logins, nor its client ids kept."""
    config = {
        "listeners": "LOGIN://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": (
            "LOGIN:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": "PLAIN",
        NAME: JAAS,
    }
    with Cluster(config=config) as cluster:
        inside = ":".join(map(str, cluster.run(lambda node: node.addresses["INSIDE"])))
        with Admin(bootstrap_servers=inside) as admin:
            change = QuotaChange({"user": None}, {"request_percentage": 1.0})
            admin.alter_client_quotas([change])
        wait_for(lambda: cluster.run(lambda node: node.broker.quotas.is_on))
        address = cluster.run(lambda node: node.addresses["LOGIN"])
        for _ in range(20):
            peer = Peer(":".join(map(str, address)))
            assert peer.ask(ApiVersionsRequest(), 0).throttle_time_ms == 0
            peer.close()
        peer = Peer(":".join(map(str, address)))
        peer.sock.sendall(many_tags())  # so many that it is decoded in several turns
        assert peer.read_frame()[:4] == (5).to_bytes(4, "big")
        peer.close()
        concerned = cluster.run(lambda node: list(node.broker.quotas._concerned.known))
        assert (ANONYMOUS.name, "test") not in concerned


def many_tags(count: int = 6_000) -> bytes:
    """Return the frame of ApiVersions version 4 with unknown tagged fields, which are ignored."""
    tags = b"".join(bytes([tag & 0x7F | 0x80, tag >> 7, 0]) for tag in range(1_000, 1_000 + count))
    header = bytes.fromhex("0012000400000005") + b"\x00\x04test\x00"
    length = bytes([count & 0x7F | 0x80, count >> 7])
    frame = header + b"\x02a\x021" + length + tags
    return len(frame).to_bytes(4, "big") + frame
