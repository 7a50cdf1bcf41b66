"""TLS settings of clients: versions, keys as text, and what Kafka refuses.

Kafka: org.apache.kafka.common.security.ssl.DefaultSslEngineFactoryTest.
"""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.options.connection import read_file, usable
from ottla.clients.settings import ADMIN, read_settings
from ottla.clients.tls import client_context
from ottla.config.client import AdminConfig
from ottla.errors import KafkaError
from tests.server.security.certificates import Authority
from tests.soaks import with_soaks


def context(**settings: Any) -> ssl.SSLContext:
    """Return the context for these settings."""
    made = client_context(read_settings(ADMIN, None, {"security_protocol": "SSL", **settings}))
    assert made is not None
    return made


def test_enabled_protocols_bound_the_versions() -> None:
    """One alone is the only one; the default is 1.2 and 1.3."""
    assert context(ssl_enabled_protocols="TLSv1.3").minimum_version == ssl.TLSVersion.TLSv1_3
    assert context(ssl_enabled_protocols="TLSv1.2").maximum_version == ssl.TLSVersion.TLSv1_2
    default = context()
    assert default.minimum_version == ssl.TLSVersion.TLSv1_2
    assert default.maximum_version == ssl.TLSVersion.TLSv1_3


def test_a_key_and_its_chain_may_stand_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As KIP-651 has it; without them the client would show no certificate at all."""
    loaded: list[tuple[str, str | None]] = []

    def load(_self: object, path: str, password: str | None = None) -> None:
        loaded.append((Path(path).read_text(), password))

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    context(ssl_keystore_key="KEY", ssl_keystore_certificate_chain="CHAIN", ssl_key_password="p")
    assert loaded == [("KEY\nCHAIN\n", "p")]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ssl_keystore_key": "KEY"}, "certificate chain is not specified"),
        ({"ssl_keystore_certificate_chain": "C"}, "private key is not specified"),
        ({"ssl_keystore_key": "KEY", "ssl_keystore_location": "/x"}, "Both SSL key store"),
        ({"ssl_keystore_password": "p"}, "cannot be specified for PEM"),
        ({"ssl_truststore_password": "p"}, "cannot be specified for PEM"),
        ({"ssl_enabled_protocols": "TLSv1.9"}, "is none of TLSv1.2, TLSv1.3"),
    ],
)
def test_what_cannot_be_done_is_refused(settings: dict[str, str], words: str) -> None:
    """A protocol limit is rejected, not ignored."""
    with pytest.raises(KafkaError, match=words):
        context(**settings)


STORES = ["jks", "pkcs12"]


@pytest.mark.parametrize("kind", with_soaks(STORES))
def test_a_store_of_keytool_is_read_without_its_type(tmp_path: Path, kind: str) -> None:
    """Kafka's default type is JKS, so that the settings of Java's clients do not name it."""
    store = tmp_path / "client.store"
    command = f"""keytool -genkeypair -alias client -keyalg EC -groupname secp256r1 -validity 2
        -dname CN=client -storetype {kind} -keystore {store} -storepass secret -keypass secret"""
    subprocess.run(command.split(), check=True, capture_output=True)
    own: dict[str, Any] = {
        "ssl_truststore_location": str(store),
        "ssl_truststore_password": "secret",
        "ssl_keystore_location": str(store),
        "ssl_keystore_password": "secret",
    }
    made = context(**own)
    typed = context(**own, ssl_truststore_type="JKS", ssl_keystore_type="PKCS12")
    assert made.cert_store_stats()["x509"] == typed.cert_store_stats()["x509"] == 1
    as_pem = {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(store)}
    with pytest.raises(KafkaError, match="cannot read the certificates"):
        context(**as_pem)


def test_a_key_that_others_can_read_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where Kubernetes mounts it, every user of the container can."""
    path = tmp_path / "client.pem"
    own = {"ssl_keystore_location": Authority().issue("client").write_pem(path)}
    context(**own)
    assert not caplog.records
    path.chmod(0o644)
    context(**own)
    assert "client.pem has a private key that others can read" in caplog.text


def test_tools_take_the_stores_of_java(tmp_path: Path) -> None:
    """The same file serves Kafka's tools and these."""
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.truststore.type=JKS\n")
    settings = usable(read_file(str(file)), AdminConfig, ADMIN)
    assert settings["ssl.truststore.type"] == "JKS"
