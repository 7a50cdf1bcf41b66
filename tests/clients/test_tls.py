"""TLS settings of clients: versions, keys as text, and what Kafka refuses.

Kafka: org.apache.kafka.common.security.ssl.DefaultSslEngineFactoryTest.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from ottla.clients.settings import ADMIN, read_settings
from ottla.clients.tls import client_context
from ottla.errors import KafkaError


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
