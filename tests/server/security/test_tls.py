"""TLS listeners: stores, client certificates, SASL_SSL, other protocols on the port, reloads."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import ssl
import struct
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Consumer, Producer
from ottla.errors import KafkaError, SslAuthenticationError
from ottla.testing.cluster import Cluster
from tests.server.security.certificates import PASSWORD, Authority
from tests.soaks import with_soaks
from tests.waits import WAIT_S, read_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAP = "TLS:SSL,MUTUAL:SSL,LOGIN:SASL_SSL,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
RULES = "RULE:^CN=(.*?),O=Ottla.*$/$1/L,DEFAULT"


@pytest.fixture(scope="module")
def authority() -> Authority:
    """Return the authority of the node and of the clients."""
    return Authority()


@pytest.fixture(scope="module")
def stores(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the stores of the module's node."""
    path = tmp_path_factory.mktemp("stores")
    authority.issue("broker").write_pem(path / "node.pem")
    authority.issue("broker").write_pkcs12(path / "node.p12")
    (path / "ca.pem").write_text(authority.pair.certificate_pem)
    authority.issue("Carol").write_pem(path / "carol.pem")
    Authority().issue("Carol").write_pem(path / "foreign.pem")
    authority.issue("Carol", days=-1).write_pem(path / "expired.pem")
    return path


@pytest.fixture(scope="module")
def cluster(stores: Path) -> Iterator[Cluster]:
    """Run a node with TLS, with client certificates, and with TLS and a login."""
    settings = {
        "listeners": (
            "TLS://localhost:0,MUTUAL://localhost:0,LOGIN://localhost:0,INSIDE://localhost:0,"
            "CONTROLLER://localhost:0"
        ),
        "listener.security.protocol.map": MAP,
        "inter.broker.listener.name": "INSIDE",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": RULES,
        "listener.name.login.ssl.keystore.type": "PKCS12",
        "listener.name.login.ssl.keystore.location": str(stores / "node.p12"),
        "listener.name.login.ssl.keystore.password": PASSWORD,
        "listener.name.login.plain.sasl.jaas.config": 'a.Plain required user_alice="secret";',
        "sasl.enabled.mechanisms": "PLAIN",
    }
    with Cluster(config=settings) as running:
        yield running


def address(cluster: Cluster, listener: str) -> str:
    """Return where a listener accepts connections."""
    host, port = cluster.run(lambda node: node.addresses[listener])
    return f"{host}:{port}"


def client(stores: Path, **settings: Any) -> dict[str, Any]:
    """Return a client's settings."""
    return {
        "security_protocol": "SSL",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(stores / "ca.pem"),
        **settings,
    }


def key_of(stores: Path, name: str) -> dict[str, Any]:
    """Return the settings of a client's certificate."""
    return {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(stores / f"{name}.pem")}


def test_records_pass_through_tls(cluster: Cluster, stores: Path) -> None:
    """Large and small, from many requests at once, and back from the log's files."""
    settings = client(stores, bootstrap_servers=address(cluster, "TLS"))
    values = [bytes([number % 256]) * (number * 997 % 300_000) for number in range(120)]
    with Producer(**settings, linger_ms=0, batch_size=1_000_000) as producer:
        for value in values:
            producer.send("encrypted", value)
        producer.flush()
    with Consumer(
        "encrypted", group_id="tls", **settings, auto_offset_reset="earliest"
    ) as consumer:
        found = read_records(consumer, len(values))
    assert [record.value for record in found] == values


def principal_of(cluster: Cluster, listener: str) -> set[str]:
    """Return the principals of a listener's connections."""
    return cluster.run(
        lambda node: {
            str(connection.principal)
            for one in node._listeners.open
            if one.name == listener
            for connection in one.connections
        }
    )


def test_a_certificate_names_the_client(cluster: Cluster, stores: Path) -> None:
    """The first rule that fits makes the principal of the subject; without one there is none."""
    settings = client(stores, **key_of(stores, "carol"))
    with Admin(bootstrap_servers=address(cluster, "MUTUAL"), **settings) as admin:
        admin.list_topics()
        assert principal_of(cluster, "MUTUAL") == {"User:carol"}
    with Admin(bootstrap_servers=address(cluster, "TLS"), **settings) as admin:
        admin.list_topics()
        assert principal_of(cluster, "TLS") == {"User:ANONYMOUS"}


@pytest.mark.parametrize("key", [None, "foreign", "expired"])
def test_other_certificates_are_refused(cluster: Cluster, stores: Path, key: str | None) -> None:
    """No certificate, one of another authority, one that has expired."""
    own = key_of(stores, key) if key else {}
    settings = client(stores, **own, request_timeout_ms=700, default_api_timeout_ms=1000)
    with (
        pytest.raises(KafkaError),
        Admin(bootstrap_servers=address(cluster, "MUTUAL"), **settings) as admin,
    ):
        admin.list_topics()


def test_sasl_ssl_asks_for_a_login(cluster: Cluster, stores: Path) -> None:
    """The key is in a PKCS12 store; the principal is that of the login."""
    settings = client(
        stores,
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="secret",
    )
    with Admin(bootstrap_servers=address(cluster, "LOGIN"), **settings) as admin:
        admin.list_topics()
        assert principal_of(cluster, "LOGIN") == {"User:alice"}


@pytest.mark.parametrize(
    "data", [struct.pack(">ihhih", 10, 18, 0, 1, -1), b"GET / HTTP/1.1\r\n\r\n"]
)
def test_a_client_without_tls_is_named(
    cluster: Cluster, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """One line and an alert say it, the connection ends, and the others go on."""
    host, port = address(cluster, "TLS").rsplit(":", 1)
    with caplog.at_level(logging.INFO), socket.create_connection((host, int(port)), WAIT_S) as sock:
        sock.sendall(data)
        assert sock.recv(100) == bytes.fromhex("15030300020250")  # internal_error, as Java's
        with suppress(ConnectionResetError):
            assert sock.recv(100) == b""
        wait_for(lambda: "does not speak TLS" in caplog.text)


def test_half_a_handshake_disturbs_no_other(cluster: Cluster, stores: Path) -> None:
    """Clients that stop in the middle are kept for a while and take no worker."""
    host, port = address(cluster, "TLS").rsplit(":", 1)
    halves = [socket.create_connection((host, int(port)), WAIT_S) for _ in range(50)]
    for half in halves:
        half.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
    with Admin(bootstrap_servers=address(cluster, "TLS"), **client(stores)) as admin:
        admin.list_topics(timeout=WAIT_S)
    for half in halves:
        half.close()


def presented(where: str) -> bytes:
    """Return the certificate that a listener shows."""
    host, port = where.rsplit(":", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), WAIT_S) as sock,
        context.wrap_socket(sock) as tls,
    ):
        return tls.getpeercert(binary_form=True) or b""


def test_a_new_certificate_needs_no_restart(
    cluster: Cluster, stores: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """New connections get it, open ones go on; a file that is no key leaves the old one."""
    where = address(cluster, "TLS")
    with Admin(bootstrap_servers=where, **client(stores)) as admin:
        admin.list_topics()
        before = presented(where)
        authority.issue("broker").write_pem(stores / "next.pem")
        (stores / "next.pem").rename(stores / "node.pem")
        after = presented(where)
        assert after != before
        (stores / "node.pem").write_text("no key")
        assert presented(where) == after
        assert "keeps its old certificates" in caplog.text
        authority.issue("broker").write_pem(stores / "node.pem")
        assert presented(where) not in {before, after}
        admin.list_topics()


@pytest.mark.parametrize("kind", with_soaks(["jks", "pkcs12"]))
def test_a_java_key_store(tmp_path: Path, kind: str) -> None:
    """A store of keytool in the old format and in the new one, both with the type JKS."""
    if shutil.which("keytool") is None:
        raise AssertionError("keytool is missing: the tests need a JVM")
    store = tmp_path / f"node.{kind}"
    command = f"""keytool -genkeypair -alias node -keyalg EC -groupname secp256r1 -validity 2
        -dname CN=localhost -ext SAN=dns:localhost -storetype {kind} -keystore {store}
        -storepass {PASSWORD} -keypass {PASSWORD}"""
    subprocess.run(command.split(), check=True, capture_output=True, env=os.environ)
    settings = {
        "listeners": "TLS://localhost:0,INSIDE://localhost:0,CONTROLLER://localhost:0",
        "listener.security.protocol.map": MAP,
        "inter.broker.listener.name": "INSIDE",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }
    with Cluster(config=settings) as cluster:
        assert presented(address(cluster, "TLS"))
        own: dict[str, Any] = {
            "ssl_truststore_type": "JKS",
            "ssl_truststore_location": str(store),
            "ssl_truststore_password": PASSWORD,
        }
        with Admin(
            bootstrap_servers=address(cluster, "TLS"), security_protocol="SSL", **own
        ) as admin:
            admin.list_topics()


def test_a_client_without_tls_learns_at_once_that_it_needs_it(tmp_path: Path) -> None:
    """It got a reset, which may be anything, and tried again for a minute."""
    settings = {
        "listeners": "TLS://localhost:0,INSIDE://localhost:0,CONTROLLER://localhost:0",
        "listener.security.protocol.map": MAP,
        "inter.broker.listener.name": "INSIDE",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": Authority().issue("broker").write_pem(tmp_path / "node.pem"),
    }
    with Cluster(config=settings) as cluster:
        servers = address(cluster, "TLS")
        text = "the listener speaks TLS"
        with (
            Admin(bootstrap_servers=servers) as admin,
            pytest.raises(SslAuthenticationError, match=text),
        ):
            admin.wait_connected(timeout=60)
        with (
            Producer(bootstrap_servers=servers) as producer,
            pytest.raises(SslAuthenticationError, match=text),
        ):
            producer.send_and_wait("t", b"v")
