"""Logins on a running node: PLAIN and SCRAM, good and bad, and what is refused before a login."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Producer
from ottla.config.broker import parse_broker_config
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.server.node.settings import security_problems
from ottla.testing.cluster import Cluster
from tests.server.requests.untrusted_clients import Peer
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN_USERS = 'org.apache.kafka.Plain required user_alice="alice-secret" user_bob="b;o=b";'
SETTINGS = {
    "listeners": "LOGIN://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": (
        "LOGIN:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.login.plain.sasl.jaas.config": PLAIN_USERS,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a node with a listener that asks for a login; carol has SCRAM credentials."""
    with Cluster(config=SETTINGS) as running:
        with as_user(running, "PLAIN", "alice", "alice-secret") as admin:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                passwords = {"carol": f"carol of {mechanism}"}
                done = admin.alter_user_scram_credentials(passwords, mechanism=mechanism)
                assert done == {"carol": None}
        yield running


def login(mechanism: str, user: str, password: str) -> dict[str, Any]:
    """Return a client's settings."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": user,
        "sasl_password": password,
    }


def as_user(cluster: Cluster, mechanism: str, user: str, password: str) -> Admin:
    """Return a client that logs in."""
    settings = login(mechanism, user, password)
    return Admin(bootstrap_servers=cluster.bootstrap, **settings)


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("PLAIN", "bob", "b;o=b"),
        ("SCRAM-SHA-256", "carol", "carol of SCRAM-SHA-256"),
        ("SCRAM-SHA-512", "carol", "carol of SCRAM-SHA-512"),
    ],
)
def test_a_user_logs_in_and_produces(
    cluster: Cluster, mechanism: str, user: str, password: str
) -> None:
    """Each mechanism lets its users in."""
    settings = login(mechanism, user, password)
    with Producer(bootstrap_servers=cluster.bootstrap, **settings) as producer:
        sent = producer.send("logins", b"value")
        producer.flush()
        assert sent.result(WAIT_S).topic == "logins"


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("PLAIN", "alice", "wrong"),
        ("PLAIN", "carol", "carol of SCRAM-SHA-256"),
        ("SCRAM-SHA-256", "carol", "carol of SCRAM-SHA-512"),
        ("SCRAM-SHA-256", "alice", "alice-secret"),
        ("SCRAM-SHA-512", "unknown", "x"),
    ],
)
def test_others_are_refused(cluster: Cluster, mechanism: str, user: str, password: str) -> None:
    """A wrong password, a user of another mechanism, an unknown user."""
    with (
        pytest.raises(KafkaError) as caught,
        as_user(cluster, mechanism, user, password) as admin,
    ):
        admin.list_topics(timeout=WAIT_S)
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_credentials_change_while_the_node_runs(cluster: Cluster) -> None:
    """A new password counts at once, a deleted credential does not; errors are by user."""
    with as_user(cluster, "PLAIN", "alice", "alice-secret") as admin:
        assert admin.alter_user_scram_credentials({"dora": "one"}) == {"dora": None}
        as_user(cluster, "SCRAM-SHA-256", "dora", "one").close()
        admin.alter_user_scram_credentials({"dora": "two"}, iterations=8192)
        with as_user(cluster, "SCRAM-SHA-256", "dora", "two") as dora:
            described = dora.describe_user_scram_credentials(["dora"])["dora"]
            assert not isinstance(described, KafkaError)
            assert [(one.mechanism, one.iterations) for one in described] == [
                ("SCRAM-SHA-256", 8192)
            ]
        assert admin.alter_user_scram_credentials(delete=["dora"]) == {"dora": None}
        missing = admin.alter_user_scram_credentials(delete=["dora"])["dora"]
        assert missing is not None
        assert missing.code is ErrorCode.RESOURCE_NOT_FOUND
        for iterations in (4095, 16_385):
            refused = admin.alter_user_scram_credentials({"dora": "x"}, iterations=iterations)
            assert refused["dora"] is not None
            assert refused["dora"].code is ErrorCode.UNACCEPTABLE_CREDENTIAL
        twice = admin.alter_user_scram_credentials({"dora": "x"}, delete=["dora"])["dora"]
        assert twice is not None
        assert twice.code is ErrorCode.RESOURCE_NOT_FOUND
    with (
        pytest.raises(KafkaError, match="invalid credentials"),
        as_user(cluster, "SCRAM-SHA-256", "dora", "two") as dora,
    ):
        dora.list_topics(timeout=WAIT_S)


@pytest.fixture
def peer(cluster: Cluster) -> Iterator[Peer]:
    """Connect without a login."""
    connected = Peer(cluster.bootstrap)
    yield connected
    connected.close()


def ends(peer: Peer) -> bool:
    """Whether the node closes the connection without an answer."""
    try:
        return peer.sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_no_request_is_served_before_the_login(peer: Peer) -> None:
    """Metadata closes the connection, without a byte."""
    with pytest.raises((EOFError, ConnectionResetError)):
        peer.ask(MetadataRequest(topics=None), 9)


def test_versions_are_answered_once(peer: Peer) -> None:
    """In full before the login; a second request for them closes the connection."""
    versions = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    assert len(peer.ask(versions, 3).api_keys) > 40
    with pytest.raises((EOFError, ConnectionResetError)):
        peer.ask(versions, 3)


def test_an_unknown_mechanism_gets_the_list_and_the_end(peer: Peer) -> None:
    """UNSUPPORTED_SASL_MECHANISM, then the connection is closed."""
    answer = peer.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert ends(peer)


def test_a_failed_login_is_answered_late(peer: Peer) -> None:
    """connection.failed.authentication.delay.ms passes before the answer and the end."""
    peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    begun_s = time.monotonic()
    answer = peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0no"), 2)
    assert time.monotonic() - begun_s >= 0.09
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert ends(peer)


def test_after_the_login_there_is_no_other(peer: Peer) -> None:
    """A handshake on a connection with a login gets ILLEGAL_SASL_STATE, and requests go on."""
    peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 2)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    again = peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert peer.ask(MetadataRequest(topics=[]), 9).brokers


def test_old_clients_send_bare_messages(peer: Peer) -> None:
    """After a handshake of version 0 the tokens have no header."""
    peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    token = b"\0alice\0alice-secret"
    peer.sock.sendall(struct.pack(">i", len(token)) + token)
    assert peer.read_frame() == b""
    assert peer.ask(MetadataRequest(topics=[]), 9).brokers


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 600 * 1024),
        struct.pack(">i", -5),
        struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">ihhi", 10, 999, 0, 1) + b"\xff\xff",
        struct.pack(">ihhih", 10, 17, 9, 1, -1),
    ],
)
def test_other_bytes_close_the_connection(peer: Peer, data: bytes) -> None:
    """A large frame, a negative size, HTTP, TLS, an unknown key, a version that is not served."""
    peer.sock.sendall(data)
    assert ends(peer)


def test_a_session_ends_unless_it_is_renewed() -> None:
    """KIP-368: after connections.max.reauth.ms a request closes the connection."""
    limited = SETTINGS | {
        "connections.max.reauth.ms": "3600000",
        "connections.max.idle.ms": "86400000",
    }
    with Cluster(config=limited) as cluster:
        peers = [Peer(cluster.bootstrap) for _ in range(2)]
        for peer in peers:
            peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret")
            assert peer.ask(token, 2).session_lifetime_ms == 3_600_000
            assert peer.ask(MetadataRequest(topics=[]), 9).brokers
        cluster.clock.advance(minutes=40)
        renewed, other = peers
        assert renewed.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        assert renewed.ask(token, 2).error_code == 0
        cluster.clock.advance(minutes=40)
        assert renewed.ask(MetadataRequest(topics=[]), 9).cluster_id  # the broker may be fenced
        with pytest.raises((EOFError, ConnectionResetError)):
            other.ask(MetadataRequest(topics=[]), 9)
        for peer in peers:
            peer.close()


def test_a_listener_without_a_login_goes_on(cluster: Cluster) -> None:
    """The other listener of the node serves clients without a login."""
    host, port = cluster.run(lambda node: node.addresses["INSIDE"])
    with socket.create_connection((host, port), WAIT_S):
        pass
    with Admin(bootstrap_servers=f"{host}:{port}") as admin:
        admin.list_topics()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "DIGEST-MD5 is not supported"),
        ({"listener.name.login.plain.sasl.jaas.config": ""}, "login modules"),
        (
            {"listener.name.login.plain.sasl.jaas.config": "a.Plain required username=x;"},
            "must name users",
        ),
    ],
)
def test_a_node_without_a_usable_login_does_not_start(changes: dict[str, str], text: str) -> None:
    """A mechanism that is not there, a JAAS text without users; no secret is shown."""
    given = {**Cluster().config, **SETTINGS, **changes, "log.dirs": "/nowhere"}
    found = [one.message for one in security_problems(parse_broker_config(given))]
    assert any(text in message for message in found)
