"""Python classes for principals, passwords and rights; `early.start.listeners`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.config.broker import parse_broker_config
from ottla.errors import ErrorCode, KafkaError
from ottla.server.node.plugins import plugin_problems
from ottla.server.node.resources import NodeResources
from ottla.testing.cluster import TEST_DEFAULTS, Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

CLASSES = "tests.server.security.plugins"
SETTINGS = {
    "listeners": "LOGIN://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": (
        "LOGIN:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.server.callback.handler.class": f"{CLASSES}.Backwards",
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


def admin(cluster: Cluster, user: str, password: str) -> Admin:
    """Return a client that logs in."""
    return Admin(
        bootstrap_servers=cluster.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username=user,
        sasl_password=password,
    )


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
        client.list_topics(timeout=2)
    if user == "mallory":
        assert "mallory is not welcome" in caplog.text


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
    }
    found = {one.name: one.message for one in plugin_problems(parse_broker_config(given))}
    assert set(found) == {"principal.builder.class", "authorizer.class.name"}
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
