"""Python classes for principals, passwords and rights; `early.start.listeners`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.config.broker import parse_broker_config
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.security.sasl.oauthbearer import first_message
from ottla.server.node.plugins import plugin_problems
from ottla.server.node.resources import NodeResources
from ottla.testing.cluster import TEST_DEFAULTS, Cluster
from tests.server.requests.untrusted_clients import Peer
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRAM = "listener.name.login.scram-sha-512"
CLASSES = "tests.server.security.plugins"
SETTINGS = {
    "listeners": "LOGIN://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": (
        "LOGIN:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "listener.name.login.plain.sasl.server.callback.handler.class": f"{CLASSES}.Backwards",
    "listener.name.login.scram-sha-256.sasl.server.callback.handler.class": f"{CLASSES}.Vault",
    "listener.name.login.oauthbearer.sasl.server.callback.handler.class": f"{CLASSES}.Guest",
    "principal.builder.class": f"{CLASSES}.ByAddress",
    "authorizer.class.name": f"{CLASSES}.OnlyTopics",
    "super.users": "User:root@127.0.0.1/PLAIN;User:ANONYMOUS@127.0.0.1/PLAINTEXT",
    "early.start.listeners": "CONTROLLER,INSIDE",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a node with all three classes."""
    with Cluster(config=SETTINGS) as running:
        yield running


def admin(cluster: Cluster, user: str, password: str, **changes: str) -> Admin:
    """Return a client that logs in."""
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": user,
        "sasl_password": password,
    }
    return Admin(**(settings | changes))


def test_rights_and_principals(cluster: Cluster) -> None:
    """The authorizer sees the principal that the builder made."""
    with admin(cluster, "alice", "ecila") as alice:
        alice.create_topic("alice-1", partitions=1)
        for name in ("other", "broken"):
            with pytest.raises(KafkaError) as refused:
                alice.create_topic(name, partitions=1)
            assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(KafkaError) as refused:
            alice.describe_acls()
        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "alice"), ("broken", "nekorb"), ("mallory", "yrollam")]
)
def test_logins_are_refused(
    cluster: Cluster, user: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong password, a class that fails, a principal that is not built."""
    caplog.set_level("INFO", "ottla.login")
    with pytest.raises(KafkaError), admin(cluster, user, password) as client:
        client.list_topics(timeout=3)  # what is not built, the client tries again
    if user == "mallory":
        assert "mallory is not welcome" in caplog.text


@pytest.mark.parametrize(
    ("user", "password", "is_in"),
    [
        ("alice", "of the vault", True),
        ("alice", "of-the-vault", False),
        ("bob", "of the vault", False),
        ("short", "of the vault", False),
        ("broken", "of the vault", False),
    ],
)
def test_credentials_of_a_class(cluster: Cluster, user: str, password: str, *, is_in: bool) -> None:
    """SCRAM with what a class has; what it has not, or not as it must be, is no credential."""
    settings = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_password": password}
    assert logs_in(admin(cluster, user, password, **settings)) is is_in


@pytest.mark.parametrize(
    ("user", "is_in"), [("alice", True), ("mallory", False), ("broken", False)]
)
def test_tokens_of_a_class(cluster: Cluster, user: str, *, is_in: bool) -> None:
    """OAUTHBEARER without any key: the class says who it is, and for how long."""
    peer = Peer(cluster.bootstrap)
    peer.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    token = first_message(f"a.{user}.b")
    answer = peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
    peer.close()
    assert (50_000 < answer.session_lifetime_ms <= 60_000) is is_in
    assert (bytes(answer.auth_bytes) == b"") is is_in


def logs_in(client: Admin) -> bool:
    """Whether a client is let in."""
    try:
        with client:
            client.list_topics(timeout=WAIT_S)
    except KafkaError as error:
        return error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED
    return True


def test_a_class_from_the_network_loads_nothing(cluster: Cluster) -> None:
    """What AlterConfigs says of classes is stored and not imported."""
    name = "listener.name.login.principal.builder.class"
    with admin(cluster, "root", "toor") as root:
        root.alter_configs({ConfigResource(ResourceType.BROKER, "1"): {name: "no.such.Class"}})
    with admin(cluster, "root", "toor") as root:
        root.list_topics()


def test_classes_that_cannot_be_had_are_named() -> None:
    """At the start, with what they lack."""
    given: dict[str, Any] = {
        **TEST_DEFAULTS,
        "log.dirs": "/nowhere",
        "principal.builder.class": f"{CLASSES}.OnlyTopics",
        "authorizer.class.name": "no.such.Authorizer",
        "sasl.server.callback.handler.class": f"{CLASSES}.Backwards",
        f"{SCRAM}.sasl.server.callback.handler.class": f"{CLASSES}.Backwards",
    }
    found = {one.name: one.message for one in plugin_problems(parse_broker_config(given))}
    scram = f"{SCRAM}.sasl.server.callback.handler.class"
    assert set(found) == {"principal.builder.class", "authorizer.class.name", scram}
    assert "it lacks: credential" in found[scram]
    assert "it lacks: build" in found["principal.builder.class"]


def test_listeners_that_open_early() -> None:
    """The controllers' ones unless others are named."""
    resources = NodeResources.__new__(NodeResources)
    resources.controller_addresses = {}
    config = parse_broker_config({**TEST_DEFAULTS, "log.dirs": "/x"})
    assert not resources.early_listeners(config)
    config = parse_broker_config(
        {**TEST_DEFAULTS, "log.dirs": "/x", "early.start.listeners": "controller,PLAINTEXT"}
    )
    assert set(resources.early_listeners(config)) == {"CONTROLLER", "PLAINTEXT"}
