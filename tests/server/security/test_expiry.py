"""When certificates expire, as the log says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.broker import parse_broker_config
from ottla.network.tls_context import (
    Identity,
    Store,
    TlsSettings,
    identity_change,
    identity_of,
)
from ottla.server.node.settings import security_problems
from ottla.server.system.tls import TlsContexts
from tests.server.security.certificates import PASSWORD, Authority

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

DAY_MS = 86_400_000


class Hands:
    """A clock that is set."""

    def __init__(self, now_ms: int) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


def test_a_warning_a_day(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """None before the last 30 days; an expired one is named so."""
    caplog.set_level("INFO", "ottla.tls")
    pair = Authority().issue("node", days=60)
    location = pair.write_pem(tmp_path / "node.pem")
    settings = TlsSettings(Store("PEM", location, None), Store("PEM", None, None), (), ())
    expires_ms = int(pair.certificate.not_valid_after_utc.timestamp() * 1000)
    clock = Hands(expires_ms - 60 * DAY_MS)
    contexts = TlsContexts(clock)
    for before_days in (60, 31, 29, 28.9, 27, -1):
        clock.ms = expires_ms - int(before_days * DAY_MS)
        contexts.of("TLS", settings)
    assert contexts.expires_s("TLS") == expires_ms / 1000
    assert contexts.expires_s("OTHER") is None
    day = pair.certificate.not_valid_after_utc.strftime("%Y-%m-%d")
    shown = [(one.levelname, one.getMessage().partition(day)[0]) for one in caplog.records]
    assert shown == [
        ("INFO", "listener TLS: its certificate expires on "),
        ("WARNING", "listener TLS: its certificate expires on "),
        ("WARNING", "listener TLS: its certificate expires on "),
        ("WARNING", "listener TLS: its certificate expired on "),
    ]


def test_the_end_of_each_kind_of_store(tmp_path: Path) -> None:
    """Of a file, of texts, of a PKCS12 store; none where there is no certificate."""
    pair = Authority().issue("node")
    end_s = pair.certificate.not_valid_after_utc.timestamp()
    stores = [
        Store("PEM", pair.write_pem(tmp_path / "a.pem"), None),
        Store("PEM", None, None, pair.key_pem, pair.certificate_pem),
        Store("PKCS12", pair.write_pkcs12(tmp_path / "a.p12"), PASSWORD),
        Store("PEM", str(tmp_path / "absent"), None),
        Store("PKCS12", None, None),
    ]
    found = [identity_of(one) for one in stores]
    ends = [None if one is None else one.expires_s for one in found]
    assert ends == [end_s, end_s, end_s, None, None]


def test_a_key_that_others_read_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Kubernetes mounts secrets with mode 0644; ssl.keystore.require.private refuses them."""
    path = tmp_path / "node.pem"
    location = Authority().issue("node").write_pem(path)
    path.chmod(0o644)
    settings = TlsSettings(Store("PEM", location, None), Store("PEM", None, None), (), ())
    TlsContexts(Hands(0)).of("TLS", settings)
    assert "listener TLS: " in caplog.text
    assert "others can read: chmod 600 it" in caplog.text
    file = {
        "process.roles": "broker",
        "node.id": "2",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "SSL://localhost:9092",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": location,
    }
    strict = {**file, "ssl.keystore.require.private": "true"}
    assert not list(security_problems(parse_broker_config(file)))
    (problem,) = security_problems(parse_broker_config(strict))
    assert "others can read" in problem.message
    path.chmod(0o640)
    caplog.clear()
    TlsContexts(Hands(0)).of("TLS", settings)
    assert "others can read" not in caplog.text
    assert not list(security_problems(parse_broker_config(strict)))


def test_a_certificate_of_another_node_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A changed file with another name leaves the old one, unless it is allowed."""
    authority, path = Authority(), tmp_path / "node.pem"
    location = authority.issue("node").write_pem(path)
    settings = TlsSettings(Store("PEM", location, None), Store("PEM", None, None), (), ())
    contexts = TlsContexts(Hands(0))
    first = contexts.of("TLS", settings)
    authority.issue("other").write_pem(path)
    assert contexts.of("TLS", settings) is first
    assert "Keystore DistinguishedName does not match" in caplog.text
    assert contexts.of("TLS", settings._replace(allows_dn_changes=True)) is not first


def test_names_may_be_added_and_not_taken_away() -> None:
    """As Kafka compares SubjectAltNames."""
    one = Identity("CN=a", frozenset({"DNSName:a"}), 0)
    two = Identity("CN=a", frozenset({"DNSName:a", "DNSName:b"}), 0)
    assert identity_change(one, two, allows_dn=False, allows_san=False) is None
    refusal = identity_change(two, one, allows_dn=False, allows_san=False)
    assert refusal is not None
    assert "SubjectAltNames do not match" in refusal
    assert identity_change(two, one, allows_dn=False, allows_san=True) is None
    assert identity_change(None, one, allows_dn=False, allows_san=False) is None
