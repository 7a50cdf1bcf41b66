"""OAUTHBEARER on a running node: good and bad tokens, renewal, and nodes that do not start."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization

from ottla import Admin
from ottla.clients.oauth import TokenSource
from ottla.clients.settings import ADMIN, read_settings
from ottla.config.broker import parse_broker_config
from ottla.config.listener_settings import ListenerSettings
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.network.fetching import FetchFailed, fetch
from ottla.network.token_retrieval import RETRIEVER, VALIDATOR, token_retriever
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.security.sasl.oauthbearer import first_message
from ottla.server.node.login_handlers import peer_token_settings
from ottla.server.node.settings import security_problems
from ottla.server.system.real import RealEnvironment
from ottla.testing.cluster import Cluster
from tests.security.provider import CLIENT_ID, CLIENT_SECRET, Provider, running_provider
from tests.security.tokens import private_key, signed
from tests.server.requests.untrusted_clients import Peer
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
FILES = "org.apache.kafka.sasl.oauthbearer.allowed.files"
KEYS = "sasl.oauthbearer.jwks.endpoint.url"
CLASSES = "tests.server.security.plugins"
SETTINGS = {
    "listeners": "LOGIN://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": (
        "LOGIN:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.expected.issuer": "https://issuer",
}


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    """Run a provider of tokens."""
    with running_provider() as running:
        yield running


@pytest.fixture(scope="module")
def cluster(provider: Provider) -> Iterator[Cluster]:
    """Run a node that believes the provider's tokens."""
    config = {
        **SETTINGS,
        "listener.name.login.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
        URLS: provider.keys_url,
    }
    with Cluster(config=config) as running:
        yield running


def client(provider: Provider, bootstrap: str = "localhost:1", **changes: Any) -> dict[str, Any]:
    """Return a client's settings, in dotted names."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
        URLS: provider.token_url,
        **changes,
    }


def test_a_client_gets_its_token_and_logs_in(provider: Provider, cluster: Cluster) -> None:
    """By client credentials."""
    with Admin(config=client(provider, cluster.bootstrap)) as admin:
        assert admin.list_topics(timeout=WAIT_S) == []


def test_assertions_and_files(provider: Provider, cluster: Cluster, tmp_path: Path) -> None:
    """A signed assertion is exchanged for a token; a file may have the token itself."""
    pem = private_key().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    key, ready, token = (tmp_path / name for name in ("key.pem", "assertion", "token"))
    key.write_bytes(pem)
    ready.write_text(signed(aud="provider") + "\n")
    token.write_text(signed())
    kind = "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"
    by_assertion = {"sasl.oauthbearer.jwt.retriever.class": kind, FILES: f"{key},{ready}"}
    made = {
        "sasl.oauthbearer.assertion.private.key.file": str(key),
        "sasl.oauthbearer.assertion.claim.aud": "provider",
        "sasl.oauthbearer.assertion.claim.sub": "me",
        "sasl.oauthbearer.assertion.claim.jti.include": True,
    }
    by_file = {"sasl.oauthbearer.token.endpoint.url": token.as_uri(), FILES: str(token)}
    for changes in (
        {**by_assertion, **made},
        {**by_assertion, "sasl.oauthbearer.assertion.file": str(ready)},
        by_file,
    ):
        with Admin(config=client(provider, cluster.bootstrap, **changes)) as admin:
            assert admin.list_topics(timeout=WAIT_S) == []


def test_classes_get_and_check_tokens(provider: Provider, cluster: Cluster) -> None:
    """A client's own classes: one gets the token, one refuses tokens; errors name the setting."""
    by_class = {RETRIEVER: f"{CLASSES}.Cabinet", URLS: ""}
    with Admin(
        config=client(provider, cluster.bootstrap, **by_class, **{"sasl.oauthbearer.scope": "read"})
    ) as admin:
        assert admin.list_topics(timeout=WAIT_S) == []
    for scope in ("none", "other"):
        changes = by_class | {"sasl.oauthbearer.scope": scope}
        with pytest.raises(KafkaError, match=r"jwt\.retriever\.class"):
            Admin(config=client(provider, **changes))
    with pytest.raises(KafkaError, match="refuses the token"):
        Admin(config=client(provider, **{VALIDATOR: f"{CLASSES}.Refusal"}))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no.such.Retriever", "no Python class"),
        (f"{CLASSES}.Guest", "lacks: retrieve"),
        ("org.apache.kafka.common.security.oauthbearer.OtherRetriever", "no class OtherRetriever"),
        ("org.apache.kafka.common.security.oauthbearer.FileJwtRetriever", "no URL for"),
    ],
)
def test_classes_that_are_none(provider: Provider, name: str, text: str) -> None:
    """An unknown class, one of another kind, one for files with another URL."""
    with pytest.raises(ConfigError, match=text):
        Admin(config=client(provider, **{RETRIEVER: name}))


def test_a_class_checks_tokens_on_a_node() -> None:
    """jwt.validator.class of the node's file: no key is needed; one from the network loads none."""
    names = (f"{CLASSES}.Guest", "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator")
    given = {**Cluster().config, **SETTINGS, "log.dirs": "/nowhere"}
    own, kafkas = (parse_broker_config({**given, VALIDATOR: name}) for name in names)
    assert list(security_problems(own)) == []
    assert [one.name for one in security_problems(kafkas)] == [KEYS]
    altered = parse_broker_config(given).with_dynamic({VALIDATOR: names[0]})
    assert [one.name for one in security_problems(altered)] == [KEYS]
    with Cluster(config={**SETTINGS, VALIDATOR: names[0]}) as cluster:
        peer = Peer(cluster.bootstrap)
        peer.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        answer = peer.ask(SaslAuthenticateRequest(auth_bytes=first_message("a.alice.b")), 2)
        assert 50_000 < answer.session_lifetime_ms <= 60_000
        peer.close()


def test_a_class_gets_tokens_of_a_node(provider: Provider) -> None:
    """jwt.retriever.class of the node's file, for its logins at other nodes."""
    given = {
        **Cluster().config,
        **SETTINGS,
        "inter.broker.listener.name": "LOGIN",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        KEYS: provider.keys_url,
        URLS: provider.keys_url,
        "sasl.oauthbearer.scope": "read",
        "log.dirs": "/nowhere",
    }
    found = security_problems(parse_broker_config(given))
    assert [one.name for one in found] == ["sasl.oauthbearer.token.endpoint.url"]
    by_class = parse_broker_config({**given, RETRIEVER: f"{CLASSES}.Cabinet"})
    assert list(security_problems(by_class)) == []
    settings = peer_token_settings(lambda: ListenerSettings(by_class, "LOGIN"), RealEnvironment())
    assert token_retriever(settings)().count(".") == 2


def test_what_is_not_allowed_is_not_read(provider: Provider, tmp_path: Path) -> None:
    """URLs and files that are in no list; wrong credentials."""
    token = tmp_path / "token"
    token.write_text(signed())
    for changes in (
        {URLS: ""},
        {"sasl.oauthbearer.token.endpoint.url": token.as_uri()},
        {"sasl.oauthbearer.token.endpoint.url": "ftp://127.0.0.1/", URLS: "ftp://127.0.0.1/"},
        {"sasl.oauthbearer.token.endpoint.url": None},
        {"sasl.oauthbearer.client.credentials.client.id": None},
    ):
        with pytest.raises(ConfigError):
            Admin(config=client(provider, **changes))
    changes = {"sasl.oauthbearer.client.credentials.client.secret": "canary"}
    with pytest.raises(KafkaError, match="status 401") as caught:
        Admin(config=client(provider, **changes))
    assert "canary" not in str(caught.value)


def unreachable() -> str:
    """Fail as a provider that is gone."""
    raise FetchFailed("gone")


def test_a_token_is_renewed_before_it_expires(provider: Provider) -> None:
    """At a part of its life, however short; a provider that fails leaves the old one."""
    source = TokenSource(read_settings(ADMIN, client(provider), {}))
    given, before = provider.given, source.token
    assert 0.8 * 3600 - 301 < source.seconds_to_renewal() <= 0.85 * 3600
    assert source.renew()
    assert provider.given == given + 1
    assert source.token.split(".")[0] == before.split(".")[0]
    before = source.token
    source._fetch = unreachable
    assert not source.renew()
    assert source.token == before


@pytest.mark.parametrize(
    "token",
    [signed(exp=1), signed(aud="other"), signed(iss="x"), signed({"alg": "none"}), "a.b.c"],
    ids=["expired", "audience", "issuer", "unsigned", "junk"],
)
def test_others_are_refused(cluster: Cluster, token: str) -> None:
    """The refusal comes as a message; the next one ends the login."""
    peer = Peer(cluster.bootstrap)
    peer.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    answer = peer.ask(SaslAuthenticateRequest(auth_bytes=first_message(token)), 2)
    assert bytes(answer.auth_bytes) == b'{"status":"invalid_token"}'
    ended = peer.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
    assert ended.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    peer.close()


def test_the_session_ends_with_the_token(cluster: Cluster) -> None:
    """Its lifetime is told, and it is the token's."""
    peer = Peer(cluster.bootstrap)
    peer.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    answer = peer.ask(SaslAuthenticateRequest(auth_bytes=first_message(signed())), 2)
    assert 3_590_000 < answer.session_lifetime_ms <= 3_600_000
    assert peer.ask(MetadataRequest(topics=[]), 9).brokers
    peer.close()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1:1/keys"},
        {"sasl.oauthbearer.jwks.endpoint.url": "file:///keys", URLS: "file:///keys"},
    ],
)
def test_without_a_key_a_node_does_not_start(changes: dict[str, str]) -> None:
    """No URL, one that is not allowed, a file that is not allowed."""
    given = {"node.id": "1", "process.roles": "broker,controller", **SETTINGS, **changes}
    given |= {"controller.listener.names": "CONTROLLER", "log.dirs": "/unused"}
    config = parse_broker_config({"controller.quorum.voters": "1@localhost:1", **given})
    found = [one.name for one in security_problems(config)]
    assert "sasl.oauthbearer.jwks.endpoint.url" in found


def test_a_slow_provider_ends_with_the_time_limit() -> None:
    """The limit is one of the whole answer, not of each read."""
    server = socket.create_server(("127.0.0.1", 0))
    is_over = threading.Event()

    def send_slowly() -> None:
        client, _ = server.accept()
        with client, suppress(OSError):
            client.recv(4096)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not is_over.wait(0.01):
                client.sendall(b"x")

    thread = threading.Thread(target=send_slowly)
    thread.start()
    try:
        with pytest.raises(FetchFailed, match="TimeoutError"):
            fetch(
                f"http://127.0.0.1:{server.getsockname()[1]}/keys",
                now_s=time.monotonic,
                timeout_s=0.2,
            )
    finally:
        is_over.set()
        thread.join()
        server.close()


def test_providers_have_workers_of_their_own(cluster: Cluster) -> None:
    """A slow provider delays no TLS handshake and no step of another login."""

    def runs(node: Any) -> tuple[Any, Any, Any]:
        (keys,) = node._security._token_logins._known.values()
        workers = node._resources.workers
        return keys._run.__self__, workers.providers, workers.handshakes

    used, providers, handshakes = cluster.run(runs)
    assert used is providers is not handshakes
