"""Third-party clients log in at our node by each mechanism that they have, or are refused.

Each program (`clients/logins.py`) plays all its logins in one process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla import Admin
from ottla.testing.cluster import Cluster
from tests.conformance.clients.login_lines import Login
from tests.conformance.clients.logins import LOGIN_CLIENTS, LoginClient
from tests.conformance.clients.stock import Program, client_or_skip
from tests.security.provider import running_provider
from tests.security.tokens import signed
from tests.server.security.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(400)]
URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
TOPIC = "logins"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SASL_LISTENERS = {"SASL_SSL": "SECURE", "SASL_PLAINTEXT": "LOGIN"}
LISTENERS = ("SECURE", "LOGIN", "TLS", "INSIDE", "CONTROLLER")
SETTINGS = {
    "listeners": ",".join(f"{one}://127.0.0.1:0" for one in LISTENERS),
    "listener.security.protocol.map": (
        "SECURE:SASL_SSL,LOGIN:SASL_PLAINTEXT,TLS:SSL,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.tls.ssl.client.auth": "required",
    "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/",
    "sasl.oauthbearer.expected.audience": "kafka",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice;User:ANONYMOUS",
} | {
    f"listener.name.{one.lower()}.plain.sasl.jaas.config": 'a.Plain required user_alice="secret";'
    for one in SASL_LISTENERS.values()
}


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run a node with all listeners; return the file of all logins."""
    path = tmp_path_factory.mktemp("logins")
    authority = Authority()
    stores = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("node").write_pem(path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(path / "ca.pem"),
    }
    (path / "ca.pem").write_text(authority.pair.certificate_pem)
    own = authority.issue("alice")
    (path / "alice.crt").write_text(own.certificate_pem)
    (path / "alice.key").write_text(own.key_pem)
    with running_provider() as provider:
        keys = {"sasl.oauthbearer.jwks.endpoint.url": provider.keys_url, URLS: provider.keys_url}
        with Cluster(config={**SETTINGS, **stores, **keys}) as cluster:
            _prepare(_address(cluster, "INSIDE"))
            listed = _listed(cluster, path)
            (path / "logins").write_text("".join("\t".join(one) + "\n" for one in listed))
            yield path / "logins"


def _prepare(bootstrap: str) -> None:
    """Make the topic and the credentials of SCRAM."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=1)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            admin.alter_user_scram_credentials({"alice": "secret"}, mechanism=mechanism)


def _address(cluster: Cluster, listener: str) -> str:
    host, port = cluster.run(lambda node: node.addresses[listener])
    return f"{host}:{port}"


def _listed(cluster: Cluster, path: Path) -> Sequence[Login]:
    """Return each login twice: as it should be, and with something wrong."""
    for name, audience in (("good", "kafka"), ("bad", "others")):
        (path / f"{name}.jwt").write_text(signed(aud=audience))
    found = []
    for protocol, listener in SASL_LISTENERS.items():
        for mechanism in MECHANISMS:
            for kind, password in (("good", "secret"), ("bad", "wrong")):
                one = Login(
                    f"{protocol}/{mechanism}/{kind}",
                    protocol,
                    mechanism,
                    _address(cluster, listener),
                    "alice",
                    password,
                    authority=str(path / "ca.pem"),
                )
                if mechanism == "OAUTHBEARER":
                    one = one._replace(token=str(path / f"{kind}.jwt"))
                found.append(one)
    tls = Login("SSL/none/bad", "SSL", "none", _address(cluster, "TLS"))
    tls = tls._replace(authority=str(path / "ca.pem"))
    own = (str(path / "alice.crt"), str(path / "alice.key"))
    return [*found, tls._replace(name="SSL/none/good", certificate=own[0], key=own[1]), tls]


@pytest.mark.parametrize("client", LOGIN_CLIENTS, ids=lambda one: one.client.name)
def test_each_mechanism(client: LoginClient, logins: Path) -> None:
    """A good login produces and consumes; a bad one is the client's error of a refused login."""
    with Program(client_or_skip(client.client), str(logins), TOPIC) as program:
        said = [line.split(" ", 2) for line in program.wait(200)]
    assert len(said) == 2 * (len(SASL_LISTENERS) * len(MECHANISMS) + 1)
    for name, outcome, text in said:
        if name.endswith("good"):
            assert (outcome, text) == ("in", name), (name, text)
        else:
            assert outcome == "refused", name
            assert client.refusal(name) in text, (name, text)
