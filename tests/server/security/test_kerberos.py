"""GSSAPI on running nodes, with a stand-in for Kerberos; `scripts/kerberos.py` has the real one."""

from __future__ import annotations

import re
import struct
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Producer
from ottla.clients.login import KerberosLogins
from ottla.clients.settings import ADMIN, read_settings
from ottla.config.broker import parse_broker_config
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.network import kerberos
from ottla.network.kerberos import KerberosLogin
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.server.node.settings import security_problems
from ottla.testing.cluster import Cluster
from tests.security.kerberos_stand_in import REALM, TICKET_S, Centre
from tests.server.requests.untrusted_clients import Peer
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"
SERVICE, ALICE = f"kafka/{HOST}@{REALM}", f"alice@{REALM}"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
LIBRARY = kerberos.system_kerberos
"""The real one, which the stand-in replaces for most tests."""
LISTENERS = ("LOGIN", "CONTROLLER")
KEYTAB = '{} required useKeyTab=true storeKey=true keyTab="{}" principal="{}";'
JAAS = "listener.name.login.gssapi.sasl.jaas.config"


def settings(keytab: Path) -> dict[str, str]:
    """Return the settings of a node all of whose listeners ask for GSSAPI."""
    text = KEYTAB.format(MODULE, keytab, SERVICE)
    return {
        "listeners": ",".join(f"{one}://{HOST}:0" for one in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{one}:SASL_PLAINTEXT" for one in LISTENERS),
        "inter.broker.listener.name": "LOGIN",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.mechanism.controller.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:kafka;User:alice",
        **{f"listener.name.{one.lower()}.gssapi.sasl.jaas.config": text for one in LISTENERS},
    }


@pytest.fixture(scope="module")
def keytab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a keytab of the service, alice and bob, whose key the centre does not know."""
    path = tmp_path_factory.mktemp("kerberos") / "keytab"
    path.write_text(f"{SERVICE} s\n{ALICE} a\nbob@{REALM} old\n")
    return path


@pytest.fixture(scope="module")
def centre() -> Iterator[Centre]:
    """Put the stand-in in the place of the library."""
    made = Centre({SERVICE: "s", ALICE: "a", f"bob@{REALM}": "b"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kerberos, "system_kerberos", lambda: made)
        yield made


@pytest.fixture(scope="module")
def cluster(centre: Centre, keytab: Path) -> Iterator[Cluster]:
    """Run three nodes."""
    assert centre.is_reachable
    with Cluster(nodes=3, config=settings(keytab)) as running:
        yield running


def client(cluster: Cluster, keytab: Path, name: str = "alice") -> dict[str, Any]:
    """Return a client's settings, in dotted names."""
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": KEYTAB.format(MODULE, keytab, f"{name}@{REALM}"),
    }


def test_nodes_and_clients_log_in(cluster: Cluster, keytab: Path) -> None:
    """Three nodes replicate what a client sends; the name of the client is the short one."""
    given = client(cluster, keytab)
    with Admin(config=given) as admin, Producer(config={**given, "acks": "all"}) as producer:
        admin.create_topic("replicated", partitions=3, replication_factor=3)
        for number in range(3):
            assert producer.send("replicated", b"x", partition=number).result(WAIT_S).offset == 0
        assert admin.describe_acls() == []


def test_a_wrong_keytab_is_refused(cluster: Cluster, keytab: Path) -> None:
    """By the centre, before anything is sent."""
    with pytest.raises(KafkaError, match="Preauthentication failed") as refused:
        Admin(config=client(cluster, keytab, "bob"))
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_another_service_is_refused(cluster: Cluster, keytab: Path) -> None:
    """A service that the centre does not know: the client's error has the centre's text."""
    given = client(cluster, keytab) | {"sasl.kerberos.service.name": "other"}
    with Admin(config=given) as admin, pytest.raises(KafkaError, match="not found in") as refused:
        admin.list_topics(timeout=WAIT_S)
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("version", [0, 1])
def test_messages_in_both_forms(
    cluster: Cluster, centre: Centre, keytab: Path, version: int
) -> None:
    """In SaslAuthenticate requests, and bare after a handshake of version 0."""
    peer = Peer(cluster.nodes[0].address)
    assert peer.ask(SaslHandshakeRequest(mechanism="GSSAPI"), version).error_code == 0

    def ask(token: bytes) -> bytes:
        if version:
            return bytes(peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2).auth_bytes)
        peer.sock.sendall(struct.pack(">i", len(token)) + token)
        return bytes(peer.read_frame())

    login = KerberosLogin(ALICE, str(keytab), None)
    context = centre.initiator(login, 0).context("kafka", HOST)
    context.step(ask(context.step(None)))
    offer = context.unwrap(ask(b""))
    assert ask(context.wrap(offer[:1] + bytes(3) + b"root")) == b""
    assert peer.ask(MetadataRequest(topics=[]), 9).brokers
    peer.close()


@pytest.mark.parametrize("version", [0, 1])
def test_refused_tickets_end_the_connection(
    cluster: Cluster, centre: Centre, keytab: Path, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An expired one: a neutral text for the client, the reason in the log."""
    caplog.set_level("INFO", "ottla.login")
    login = KerberosLogin(ALICE, str(keytab), None)
    token = centre.initiator(login, 0).context("kafka", HOST).step(None)
    peer = Peer(cluster.nodes[0].address)
    peer.ask(SaslHandshakeRequest(mechanism="GSSAPI"), version)
    centre.now_s += TICKET_S
    if version:
        answer = peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "invalid credentials with SASL mechanism GSSAPI" in answer.error_message
    else:
        peer.sock.sendall(struct.pack(">i", len(token)) + token)
    with pytest.raises((EOFError, ConnectionResetError)):
        peer.read_frame()
    assert "Ticket expired" in caplog.text
    peer.close()


def test_a_client_renews_its_tickets(cluster: Cluster, centre: Centre, keytab: Path) -> None:
    """By its thread when they are about to end; a cache is renewed by kinit, whose end counts."""
    given = client(cluster, keytab) | {"sasl.kerberos.ticket.renew.jitter": 0.0}
    logins = KerberosLogins(read_settings(ADMIN, given, {}), kerberos_options(keytab))
    assert logins.seconds_to_renewal() == pytest.approx(80)
    centre.now_s += 70
    assert logins.renew()
    assert logins.seconds_to_renewal() == pytest.approx(80)
    centre.is_reachable = False
    assert not logins.renew()
    centre.is_reachable = True
    cache = keytab.parent / "cache"
    cache.write_text(ALICE)
    centre.now_s = 0
    for command, is_renewed in (("true", True), ("false", False), ("no-such-program", False)):
        given = {**client(cluster, keytab), "sasl.kerberos.kinit.cmd": command}
        by_cache = KerberosLogins(read_settings(ADMIN, given, {}), {"ticketCache": str(cache)})
        assert by_cache.renew() is is_renewed
    wait_for(lambda: bool(logins.seconds_to_renewal()))


def kerberos_options(keytab: Path) -> dict[str, str]:
    """Return the options of the login module."""
    return {"useKeyTab": "true", "keyTab": str(keytab), "principal": ALICE}


def test_without_the_extra_nothing_starts(keytab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line for a node, one for a client, that name it."""
    monkeypatch.setattr(kerberos, "system_kerberos", LIBRARY)
    monkeypatch.setitem(sys.modules, "gssapi", None)
    given = {**Cluster().config, **settings(keytab), "log.dirs": "/nowhere"}
    given |= {
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    (problem,) = security_problems(parse_broker_config(given))
    assert problem.message == (
        "sasl.enabled.mechanisms: GSSAPI for listener LOGIN: GSSAPI needs a library that is not "
        "installed: pip install gssapi"
    )
    with pytest.raises(ConfigError, match=re.escape("pip install gssapi")):
        Admin(
            bootstrap_servers="localhost:1",
            security_protocol="SASL_PLAINTEXT",
            sasl_kerberos_service_name="kafka",
        )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({JAAS: f"{MODULE} required;"}, "a node needs useKeyTab=true, keyTab and principal"),
        ({JAAS: KEYTAB.format(MODULE, "/no/such", SERVICE)}, "/no/such' not found"),
        ({"sasl.kerberos.service.name": ""}, "No serviceName defined in either JAAS"),
        ({"sasl.kerberos.principal.to.local.rules": "RULE:x"}, "Invalid rule: RULE:x"),
    ],
)
def test_a_node_with_wrong_settings_does_not_start(
    centre: Centre, keytab: Path, changes: dict[str, str], text: str
) -> None:
    """Each names what is wrong."""
    assert centre.is_reachable
    given = {**Cluster().config, **settings(keytab), **changes, "log.dirs": "/nowhere"}
    found = [one.message for one in security_problems(parse_broker_config(given))]
    assert any(text in message for message in found), found
