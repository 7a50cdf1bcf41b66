"""Clusters whose nodes log in at each other, over TLS and by SASL, with rights checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Producer
from ottla.clients.admin.topics import NewTopic
from ottla.config.broker import parse_broker_config
from ottla.errors import ErrorCode
from ottla.protocol import codec
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.envelope import EnvelopeRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.frames import encode_request
from ottla.protocol.records.principal import DefaultPrincipalData
from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from ottla.server.node.security import security_problems
from ottla.testing.cluster import Cluster
from tests.server.requests.untrusted_clients import Peer
from tests.server.security.certificates import Authority
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

JAAS = 'a.Plain required username="node" password="n" user_node="n" user_alice="a";'


def stores(path: Path) -> dict[str, str]:
    """Return the settings of TLS, with certificates of an own authority."""
    authority = Authority()
    (path / "ca.pem").write_text(authority.pair.certificate_pem)
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("node").write_pem(path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(path / "ca.pem"),
    }


def settings(protocol: str) -> dict[str, str]:
    """Return a cluster's settings with one protocol on all listeners."""
    return {
        "listeners": "SECURE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": f"SECURE:{protocol},CONTROLLER:{protocol}",
        "inter.broker.listener.name": "SECURE",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": JAAS,
        "listener.name.controller.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL", "SASL_PLAINTEXT"])
def test_three_nodes_replicate(protocol: str, tmp_path: Path) -> None:
    """Records with acks=all reach all replicas; a client's request is forwarded with its rights."""
    given = settings(protocol) | {"super.users": "User:node;User:alice"}
    client: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        given |= stores(tmp_path)
        client |= {
            "ssl_truststore_type": "PEM",
            "ssl_truststore_location": given["ssl.truststore.location"],
        }
    if protocol == "SSL":
        given |= {
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/",
        }
        client |= {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": given["ssl.keystore.location"],
        }
    else:
        client |= {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "a"}
    with Cluster(nodes=3, config=given) as cluster:
        client["bootstrap_servers"] = cluster.bootstrap
        with Admin(**client) as admin, Producer(**client, acks="all") as producer:
            admin.create_topics([NewTopic("replicated", 3, 3)])
            for number in range(30):
                producer.send("replicated", b"%d" % number, partition=number % 3)
            producer.flush()
            assert producer.send("replicated", b"last", partition=0).result(WAIT_S).offset == 10


def test_voters_do_not_wait_for_credentials_in_their_own_log() -> None:
    """A quorum of several voters cannot log in by SCRAM: it is refused with the reason."""
    given = {
        **Cluster().config,
        **settings("SASL_PLAINTEXT"),
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "controller.quorum.bootstrap.servers": "a:1,b:1,c:1",
        "log.dirs": "/nowhere",
    }
    found = [one.message for one in security_problems(parse_broker_config(given))]
    assert any("which they would wait for" in message for message in found)


def test_forwarded_requests_are_decided_once_where_the_controller_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One decision for each, with the client's principal; the broker on the way decides nothing."""
    given = settings("SASL_PLAINTEXT") | {"super.users": "User:node"}
    with Cluster(nodes=3, config=given) as cluster:
        standby = next(one for one in cluster.nodes if one.node_id != cluster.controller_id)
        client: dict[str, Any] = {
            "bootstrap_servers": standby.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_password": "n",
        }
        right = Acl(
            ResourceType.TOPIC,
            PatternType.PREFIXED,
            "al",
            "User:alice",
            "127.0.0.1",
            Operation.CREATE,
            Permission.ALLOW,
        )
        with Admin(**client, sasl_username="node") as admin:
            admin.create_acls([right])
        client["sasl_password"] = "a"
        caplog.set_level("DEBUG", "ottla.authorizer")
        with Admin(**client, sasl_username="alice") as admin:
            admin.create_topics([NewTopic("allowed", 1, 1), NewTopic("other", 1, 1)])
    decided = [
        one.getMessage()
        for one in caplog.records
        if "Principal = User:alice" in one.getMessage()
        and "operation = CREATE " in one.getMessage()
    ]
    assert sum("TOPIC:allowed" in line for line in decided) == 1, decided
    assert sum("TOPIC:other" in line for line in decided) == 1, decided


def test_an_envelope_needs_cluster_action() -> None:
    """A client that speaks for others at a controller is refused (Envelope is not trusted)."""
    given = settings("SASL_PLAINTEXT") | {"super.users": "User:node"}
    frame = encode_request(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5, 0, "forged")
    spoken: list[Any] = []
    codec.encode_into(
        DefaultPrincipalData(type="User", name="node", token_authenticated=False), 0, spoken
    )
    forged = EnvelopeRequest(
        request_data=b"".join(frame[1:]),  # type: ignore[arg-type] # no file slices
        request_principal=bytes(2) + b"".join(spoken),
        client_host_address=bytes([127, 0, 0, 1]),
    )
    with Cluster(config=given) as cluster:
        host, port = cluster.run(lambda node: node.addresses["CONTROLLER"])
        peer = Peer(f"{host}:{port}")
        peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0a"), 2)
        answer = peer.ask(forged, 0)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.response_data is None
