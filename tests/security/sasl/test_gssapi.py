"""GSSAPI as a state machine, with a stand-in for Kerberos."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode, KafkaError
from ottla.network.kerberos import KerberosLogin, Renewal, Tickets, kerberos_login, service_name
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.apis.sasl_handshake import SaslHandshakeResponse
from ottla.security.sasl.client import kerberos_login as begin_login
from ottla.security.sasl.gssapi import (
    GSSAPI,
    ContextFailed,
    GssapiServer,
    gssapi_messages,
    parse_kerberos_rules,
)
from ottla.security.sasl.mechanism import InvalidToken
from ottla.security.sasl.server import SaslServer
from tests.security.kerberos_stand_in import REALM, TICKET_S, Centre

if TYPE_CHECKING:
    from pathlib import Path

    from tests.security.kerberos_stand_in import Context

SERVICE, ALICE = f"kafka/host@{REALM}", f"alice@{REALM}"
RULES = parse_kerberos_rules(["DEFAULT"], REALM)
OFFER = b"\x01\x01\x00\x00"


class Realm:
    """A centre, and the keytab of a service and a client."""

    def __init__(self, path: Path) -> None:
        self.centre = Centre({SERVICE: "of the service", ALICE: "of alice"})
        self.keytab = path / "keytab"
        keys = [f"{name} {key}\n" for name, key in self.centre.keys.items()]
        self.keytab.write_text("".join(keys))

    @property
    def login(self) -> KerberosLogin:
        """How alice logs in."""
        return KerberosLogin(ALICE, str(self.keytab), None)

    def tickets(self) -> Tickets:
        """Return alice's tickets."""
        return Tickets(self.centre, self.login, "kafka", Renewal(0.8, 0.05, 10))

    def server(self) -> GssapiServer:
        """Begin a login on the service."""
        return GssapiServer(self.accepting(), RULES)

    def accepting(self) -> Context:
        """Return the service's side."""
        return self.centre.acceptor(SERVICE, str(self.keytab))()


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    """Return a new centre."""
    return Realm(tmp_path)


def test_a_client_logs_in(realm: Realm) -> None:
    """Ticket, empty answer, offer of no layer and 64 KiB as Java's, choice; then the short name."""
    server = realm.server()
    tickets = realm.tickets()
    login = begin_login(lambda: tickets.begin("host"), "ignored")
    login.next_request(None)
    request = login.next_request(SaslHandshakeResponse(mechanisms=[GSSAPI]))
    sent: list[bytes] = []
    while request is not None:
        assert isinstance(request, SaslAuthenticateRequest)
        sent.append(bytes(request.auth_bytes))
        answer = server.evaluate(sent[-1])
        response = SaslAuthenticateResponse(error_message=None, auth_bytes=answer)
        request = login.next_request(response)
    assert [len(one) > 0 for one in sent] == [True, False, True]
    assert (server.user, server.is_complete, server.expires_ms) == ("alice", True, None)


def test_the_offer_is_that_of_java(realm: Realm) -> None:
    """One byte of the layer, three of the buffer."""
    server, context = realm.server(), realm.tickets().begin("host")
    context.step(server.evaluate(context.step(None)))
    assert context.unwrap(server.evaluate(b"")) == OFFER


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (b"\x02\x00\x00\x00alice", "not offered"),
        (b"\x04\x00\x00\x00", "not offered"),
        (b"\x01\x00", "not offered"),
        (b"", "not offered"),
    ],
)
def test_other_layers_are_refused(realm: Realm, choice: bytes, text: str) -> None:
    """Integrity, confidentiality, a short message."""
    server, context = realm.server(), realm.tickets().begin("host")
    context.step(server.evaluate(context.step(None)))
    server.evaluate(b"")
    with pytest.raises(InvalidToken, match=text):
        server.evaluate(context.wrap(choice))
    assert not server.is_complete


def test_an_unsigned_choice_is_refused(realm: Realm) -> None:
    """As is anything where the client has to be silent."""
    server, context = realm.server(), realm.tickets().begin("host")
    context.step(server.evaluate(context.step(None)))
    with pytest.raises(InvalidToken):
        server.evaluate(b"x")
    server.evaluate(b"")
    with pytest.raises(InvalidToken):
        server.evaluate(OFFER)
    assert not server.is_complete


def test_a_name_without_a_rule_is_refused(realm: Realm) -> None:
    """The reason is in the log's text; the client gets the neutral one."""
    rules = parse_kerberos_rules(["RULE:[2:$1]"], REALM)
    login = SaslServer(
        {GSSAPI: lambda: GssapiServer(realm.accepting(), rules)}, max_session_ms=lambda _: 0
    )
    login.handshake(GSSAPI, 1)
    context = realm.tickets().begin("host")
    context.step(bytes(login.authenticate(context.step(None), lambda: 0).auth_bytes))
    login.authenticate(b"", lambda: 0)
    answer = login.authenticate(context.wrap(OFFER), lambda: 0)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism GSSAPI"
    )
    assert "No rules apply to" in str(login.failure)
    assert login.principal is None


def test_an_expired_ticket_is_refused(realm: Realm) -> None:
    """By the service, and by the client before it sends one."""
    tickets = realm.tickets()
    token = tickets.begin("host").step(None)
    realm.centre.now_s = TICKET_S
    with pytest.raises(InvalidToken, match="Ticket expired"):
        realm.server().evaluate(token)
    with pytest.raises(ContextFailed, match="Ticket expired"):
        tickets.begin("host")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=4))
def test_any_bytes_log_nobody_in(tokens: list[bytes]) -> None:
    """Each message is answered or refused."""
    centre = Centre({})
    server = GssapiServer(centre_context(centre), RULES)
    for token in tokens:
        try:
            server.evaluate(token)
        except InvalidToken:
            return
        assert not server.is_complete


def centre_context(centre: Centre) -> Context:
    """Return the side of a service without a keytab file."""
    from tests.security.kerberos_stand_in import Context

    return Context(centre, accepts=(SERVICE, "of the service"))


@pytest.mark.parametrize("offer", [b"\x06\x00\x00\x00", b"\x01", b""])
def test_a_client_refuses_other_offers(realm: Realm, offer: bytes) -> None:
    """A server without the layer "none"."""
    context = realm.accepting()
    messages = gssapi_messages(lambda: realm.tickets().begin("host"), "alice")
    answer = context.step(next(messages))
    assert messages.send(answer) == b""
    with pytest.raises(KafkaError, match="No common protection layer"):
        messages.send(context.wrap(offer))


def test_a_client_refuses_another_service(realm: Realm) -> None:
    """An answer that the service's key did not make."""
    messages = gssapi_messages(lambda: realm.tickets().begin("host"), "alice")
    next(messages)
    with pytest.raises(KafkaError, match="GSSAPI: ") as refused:
        messages.send(b"forged")
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_tickets_are_renewed(realm: Realm) -> None:
    """Also those for hosts, so that a repeated login waits for nothing; a failure keeps them."""
    tickets = realm.tickets()
    tickets.prepare("host")
    assert tickets.seconds_to_renewal(1.0) == pytest.approx(85)
    realm.centre.now_s = 85
    assert tickets.seconds_to_renewal(0) == pytest.approx(12)
    realm.centre.is_reachable = False
    with pytest.raises(ContextFailed, match="Cannot contact"):
        tickets.renew()
    realm.centre.is_reachable = True
    realm.centre.asked.clear()
    tickets.renew()
    assert realm.centre.asked == [(ALICE, SERVICE)]
    realm.centre.now_s = 170
    assert tickets.seconds_to_renewal(0) == pytest.approx(12)
    realm.centre.now_s = 180
    assert tickets.seconds_to_renewal(0) == pytest.approx(2.5)
    realm.centre.now_s = 200
    tickets.prepare("host")
    assert tickets.begin("host").step(None)


def test_a_host_without_a_ticket_is_reported_once(realm: Realm) -> None:
    """By the login after `prepare`."""
    tickets = realm.tickets()
    tickets.prepare("other")
    with pytest.raises(ContextFailed, match="not found in Kerberos database"):
        tickets.begin("other")
    tickets.prepare("host")
    assert tickets.begin("host").step(None)


def test_options_of_the_login_module(tmp_path: Path) -> None:
    """A keytab with its principal, or a ticket cache; the service's name with Kafka's errors."""
    keytab = str(tmp_path / "k")
    given = {"useKeyTab": "true", "keyTab": f"file:{keytab}", "principal": ALICE}
    assert kerberos_login(given) == KerberosLogin(ALICE, keytab, None)
    assert kerberos_login({}) == KerberosLogin(None, None, None)
    assert kerberos_login({"useTicketCache": "true", "ticketCache": "c"}).cache == "c"
    with pytest.raises(KafkaError, match="needs keyTab and principal"):
        kerberos_login({"useKeyTab": "true", "principal": ALICE})
    assert service_name({"serviceName": "kafka"}, None) == service_name({}, "kafka") == "kafka"
    with pytest.raises(KafkaError, match="Conflicting serviceName values found in JAAS"):
        service_name({"serviceName": "a"}, "b")
    with pytest.raises(KafkaError, match="No serviceName defined in either JAAS"):
        service_name({}, None)
