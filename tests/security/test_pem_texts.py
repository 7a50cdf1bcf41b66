"""PEM texts as settings, compose files and environment variables hold them.

Kafka: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.PemParser.
"""

from __future__ import annotations

import ssl

import pytest

from ottla.network.tls_context import Store, TlsSettings, server_context
from ottla.security.keystores import pem_lines
from tests.server.security.certificates import Authority

PAIR = Authority().issue("node")
SEPARATORS = ["\n", "\r\n", " ", "   ", "\\n", "\\r\\n", "\t", " \n "]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_any_white_space_ends_a_line(separator: str) -> None:
    """Also a chain of two certificates, in one line, and text before the blocks."""
    for text in (PAIR.key_pem, PAIR.certificate_pem, PAIR.certificate_pem * 2):
        assert pem_lines(separator.join(text.strip().split("\n"))).split() == text.split()
    given = TlsSettings(
        Store(
            "PEM",
            None,
            None,
            separator.join(PAIR.key_pem.split("\n")),
            separator.join(("Bag Attributes\n" + PAIR.certificate_pem).split("\n")),
        ),
        Store("PEM", None, None, certificates=separator.join(PAIR.certificate_pem.split("\n"))),
        (),
        (),
    )
    context = server_context(given)
    assert len(context.get_ca_certs()) <= 1
    assert isinstance(context, ssl.SSLContext)


def test_the_headers_of_an_encrypted_key_stay() -> None:
    """They are lines of their own, and what is no PEM is not changed."""
    kind = "RSA PRIVATE KEY-----"
    text = f"-----BEGIN {kind}\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END {kind}"
    assert pem_lines(text) == text
    assert pem_lines("KEY") == "KEY"
