"""Clusters whose nodes log in at each other, over TLS and by SASL, with rights checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Producer
from ottla.clients.admin.topics import NewTopic
from ottla.config.broker import parse_broker_config
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol import codec
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.envelope import EnvelopeRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.frames import encode_request
from ottla.protocol.records.principal import DefaultPrincipalData
from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from ottla.server.node.settings import security_problems
from ottla.testing.cluster import Cluster
from tests.security.provider import CLIENT_ID, CLIENT_SECRET, running_provider
from tests.server.requests.untrusted_clients import Peer
from tests.server.security.certificates import Authority
from tests.server.security.test_token_logins import URLS
from tests.soaks import with_soaks
from tests.waits import WAIT_S, wait_for

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


@pytest.mark.parametrize("protocol", with_soaks(["SASL_SSL", "SSL", "SASL_PLAINTEXT"]))
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


def test_nodes_log_in_by_tokens() -> None:
    """Brokers and voters by OAUTHBEARER: each has a token of its own, and renews it."""
    with running_provider() as provider:
        provider.seconds = 4
        prefix = "sasl.oauthbearer."
        tokens = {
            f"{prefix}jwks.endpoint.url": provider.keys_url,
            f"{prefix}expected.audience": "kafka",
            f"{prefix}token.endpoint.url": provider.token_url,
            f"{prefix}client.credentials.client.id": CLIENT_ID,
            f"{prefix}client.credentials.client.secret": CLIENT_SECRET,
            URLS: f"{provider.keys_url},{provider.token_url}",
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.mechanism.controller.protocol": "OAUTHBEARER",
            "super.users": "User:alice",  # whose the provider's tokens are
            "sasl.login.refresh.min.period.seconds": "0",
            "sasl.login.refresh.buffer.seconds": "0",
        }
        with Cluster(nodes=3, config=settings("SASL_PLAINTEXT") | tokens) as cluster:
            replicate(cluster)
            given = provider.given
            assert given >= 6
            wait_for(lambda: provider.given > given)
            replicate(cluster, "later")


@pytest.mark.soak
def test_brokers_log_in_by_scram() -> None:
    """With credentials that an admin stores while they run: until then they replicate nothing."""
    changes = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.secure.scram-sha-256.sasl.jaas.config": JAAS,
        "super.users": "User:node;User:alice",
    }
    with Cluster(nodes=3, config=settings("SASL_PLAINTEXT") | changes) as cluster:
        with Admin(**by_plain(cluster)) as admin:
            admin.alter_user_scram_credentials({"node": "n"})
        replicate(cluster)


def test_an_admin_logs_in_by_scram_at_a_controller() -> None:
    """The controller has the credentials of the log that it leads."""
    changes = {
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "super.users": "User:node;User:alice",
    }
    with Cluster(config=settings("SASL_PLAINTEXT") | changes) as cluster:
        client = by_plain(cluster)
        with Admin(**client) as admin:
            admin.alter_user_scram_credentials({"alice": "by scram"})
        host, port = cluster.run(lambda node: node.addresses["CONTROLLER"])
        del client["bootstrap_servers"]
        client |= {"bootstrap_controllers": f"{host}:{port}", "sasl_mechanism": "SCRAM-SHA-256"}
        with Admin(**client | {"sasl_password": "by scram"}) as admin:
            assert admin.describe_metadata_quorum().leader_id == 1
        with pytest.raises(KafkaError) as caught, Admin(**client) as admin:
            admin.describe_metadata_quorum(timeout=WAIT_S)
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_node_without_a_way_to_tokens_does_not_start() -> None:
    """No URL, or one that is not allowed."""
    given = {
        **Cluster().config,
        **settings("SASL_PLAINTEXT"),
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "log.dirs": "/nowhere",
    }
    name = "sasl.oauthbearer.token.endpoint.url"
    for changes in ({}, {name: "http://127.0.0.1:1/token"}):
        found = [one.name for one in security_problems(parse_broker_config(given | changes))]
        assert name in found


def by_plain(cluster: Cluster) -> dict[str, Any]:
    """Return the settings of alice."""
    return {
        "bootstrap_servers": cluster.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": "a",
    }


def replicate(cluster: Cluster, topic: str = "replicated") -> None:
    """Send a record to each of three leaders; all replicas must have it."""
    client = by_plain(cluster)
    with Admin(**client) as admin, Producer(**client, acks="all") as producer:
        admin.create_topics([NewTopic(topic, 3, 3, configs={"min.insync.replicas": "3"})])
        for number in range(3):
            assert producer.send(topic, b"one", partition=number).result(WAIT_S).offset == 0


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
    assert sum("Topic:LITERAL:allowed " in line for line in decided) == 1, decided
    assert sum("Topic:LITERAL:other " in line for line in decided) == 1, decided


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
