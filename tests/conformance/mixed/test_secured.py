"""Nodes of both kinds log in at each other over SASL_SSL: brokers, voters, forwarded requests.

Clients use the listener of the nodes, with credentials and rights that one kind stores and both
check.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer
from ottla.errors import ErrorCode
from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.conformance.clusters.load import wait_for
from tests.conformance.clusters.nodes import KAFKA, LATER, OTTLA, Cluster
from tests.server.security.certificates import Authority
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(200)]
MEMBERS = (OTTLA, KAFKA, OTTLA)
MODULES = "org.apache.kafka.common.security"
PLAIN = (
    f"{MODULES}.plain.PlainLoginModule required "
    'username="node" password="n" user_node="n" user_bob="b";'
)
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,NODES:SASL_SSL,CONTROLLER:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": PLAIN,
    "listener.name.nodes.plain.sasl.jaas.config": PLAIN,
    "listener.name.nodes.scram-sha-256.sasl.jaas.config": (
        f"{MODULES}.scram.ScramLoginModule required;"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:ANONYMOUS",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "offsets.topic.replication.factor": "3",
}


@pytest.fixture(scope="module")
def cluster(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run the nodes; alice has a credential and rights, bob only a password."""
    path = tmp_path_factory.mktemp("secured-mixed")
    authority = Authority()
    (path / "ca.pem").write_text(authority.pair.certificate_pem)
    stores = {
        "ssl.keystore.location": authority.issue("node").write_pem(path / "node.pem"),
        "ssl.truststore.location": str(path / "ca.pem"),
    }
    running = Cluster(path, MEMBERS, kafka, has_links=False)
    running.format(
        settings_of={
            node: SETTINGS | stores | (LATER if member is KAFKA else {})
            for node, member in enumerate(MEMBERS, 1)
        }
    )
    try:
        running.start()
        wait_for(lambda: all(one.is_ready for one in running.nodes), "nodes do not serve")
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == len(MEMBERS), "fenced")
            admin.alter_user_scram_credentials({"alice": "a"})
            assert not any(admin.create_acls(rights_of_alice()).values())
        yield running
    finally:
        running.kill()


def rights_of_alice() -> list[Acl]:
    """Return what lets alice make, fill and read topics."""
    return [
        Acl(
            kind, PatternType.PREFIXED, "under-", "User:alice", "*", Operation.ALL, Permission.ALLOW
        )
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]


def login(cluster: Cluster, node: int, user: str, mechanism: str) -> dict[str, Any]:
    """Return the settings of a user's client that begins at a node."""
    return {
        "bootstrap_servers": f"127.0.0.1:{cluster.node(node).ports[1]}",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_username": user,
        "sasl_password": user[0],
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(cluster.node(node).directory.parent / "ca.pem"),
    }


def let_control(cluster: Cluster, admin: Admin, kind: str) -> None:
    """Kill the active controller until one of this kind is active, with all nodes up."""
    for _ in range(8):
        wait_for(lambda: len(admin.describe_cluster().brokers) == len(MEMBERS), "fenced")
        active = cluster.node(admin.describe_metadata_quorum().leader_id)
        if active.member.kind == kind:
            return
        active.kill()
        wait_for(
            lambda active=active: (  # type: ignore[misc] # bound now
                admin.describe_metadata_quorum().leader_id != active.node_id
            ),
            "no other node becomes the active controller",
        )
        active.start()
        wait_for(lambda active=active: active.is_ready, "a node does not serve")  # type: ignore[misc]
    raise AssertionError(f"no node of {kind} becomes the active controller")


@pytest.mark.parametrize("kind", ["kafka", "ottla"])
def test_nodes_of_both_kinds(cluster: Cluster, kind: str) -> None:
    """Under a controller of each kind: requests through each broker, leaders on each, groups."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        let_control(cluster, admin, kind)
    for node in (1, 2):
        alice = login(cluster, node, "alice", "SCRAM-SHA-256")
        topic = f"under-{kind}-through-{node}"
        replicas = {number: [number + 1, *_others(number + 1)] for number in range(3)}
        with Admin(**alice) as admin:
            made = admin.create_topics(
                [NewTopic(topic, assignments=replicas, configs={"min.insync.replicas": "3"})]
            )
            assert not isinstance(made[topic], Exception), made
        with Producer(**alice, acks="all") as producer:
            sent = [producer.send(topic, b"%d" % one, partition=one % 3) for one in range(30)]
            assert [one.result(WAIT_S).offset for one in sent] == [one // 3 for one in range(30)]
        with Consumer(topic, **alice, group_id=topic, auto_offset_reset="earliest") as consumer:
            read = {one.value for one in islice(consumer, 30)}
        assert len(read) == 30
        with Admin(**login(cluster, node, "bob", "PLAIN")) as admin:
            refused = admin.create_topics([NewTopic("under-bob", 1, 1)])["under-bob"]
            assert isinstance(refused, KafkaError)
            assert refused.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _others(node: int) -> list[int]:
    return [one for one in (1, 2, 3) if one != node]
