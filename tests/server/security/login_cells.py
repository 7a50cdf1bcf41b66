"""Each protocol, mechanism and listener with good, bad, expired and revoked credentials.

`OUTCOMES` says what a client meets. A cell is a conversation in two parts: what happens at once,
and after a session's time; all cells of a node wait together. The same cells
are asked of nodes in this process and of real Kafka.
"""

from __future__ import annotations

import re
import secrets
import ssl
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import KafkaError
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.security.sasl.client import kerberos_login, make_mechanism_login, token_login
from tests.security.kerberos_stand_in import REALM, TICKET_S, Context
from tests.security.tokens import signed
from tests.server.requests.untrusted_clients import Peer
from tests.server.security.login_sites import (
    HOST,
    MECHANISMS,
    PASSWORDS,
    PROTOCOLS,
    ROLES,
    SERVICE,
    SESSION_S,
    users_text,
)
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from ottla.protocol.schema import Request
    from ottla.security.sasl.client import MechanismLogin
    from tests.server.security.login_sites import Site

    Conversation = Generator[None, None, str]

CASES: Final = ("good", "bad", "expired", "revoked")
_NEUTRAL: Final = (
    "58 Authentication failed during {} due to invalid credentials with SASL mechanism {}, closed"
)
_WRONG_PASSWORD: Final = "58 Authentication failed: Invalid username or password, closed"
_WRONG_TOKEN: Final = '58 {"status":"invalid_token"}, closed'
SCRAM: Final = PASSWORDS[1:]
OUTCOMES: Final = {
    ("none", "good"): "in",
    ("none", "bad"): "34; in",
    ("certificate", "good"): "in",
    ("certificate", "bad"): "closed",
    ("certificate", "expired"): "closed",
    ("certificate", "revoked"): "in; in; closed",
    **{(mechanism, "good"): "in" for mechanism in MECHANISMS},
    ("PLAIN", "bad"): _WRONG_PASSWORD,
    ("PLAIN", "expired"): "in; closed; in",
    ("PLAIN", "revoked"): f"in; in; {_WRONG_PASSWORD}",
    **{(one, "bad"): _NEUTRAL.format("authentication", one) for one in (*SCRAM, "GSSAPI")},
    **{(one, "expired"): "in; closed; in" for one in SCRAM},
    **{
        (one, "revoked"): f"in; in; {_NEUTRAL.format('re-authentication', one)}"
        for one in (*SCRAM, "GSSAPI")
    },
    ("TOKEN", "bad"): _NEUTRAL.format("authentication", SCRAM[0]),
    ("TOKEN", "expired"): f"in; closed; {_NEUTRAL.format('authentication', SCRAM[0])}",
    ("TOKEN", "revoked"): f"in; in; {_NEUTRAL.format('re-authentication', SCRAM[0])}",
    ("OAUTHBEARER", "bad"): _WRONG_TOKEN,
    ("OAUTHBEARER", "expired"): f"in; closed; {_WRONG_TOKEN}",
    ("OAUTHBEARER", "revoked"): f"in; in; {_WRONG_TOKEN}",
    ("GSSAPI", "expired"): f"in; closed; {_NEUTRAL.format('authentication', 'GSSAPI')}",
}
"""What a client meets, by mechanism and case, on each listener with a protocol that has it.

Expired: a session's time passes, then a request on the same connection, then a new login.
Revoked: a request on the same connection, then, when the session has ended, a login on it.
"""
KAFKAS: Final = {
    ("PLAIN", "revoked"): "in; in; in",
    ("TOKEN", "expired"): "in; closed; closed",
}
"""What real Kafka does otherwise: it keeps users of PLAIN until its restart, and lets a token that
has expired log in for no time."""
_VERSIONS: Final = ApiVersionsRequest(client_software_name="a", client_software_version="1")
_ENDED: Final = (EOFError, ConnectionError, ssl.SSLError)


class Cell(NamedTuple):
    """One conversation."""

    protocol: str
    role: str
    mechanism: str
    case: str

    def __str__(self) -> str:
        return "/".join(self)

    @property
    def listener(self) -> str:
        """The listener that is asked."""
        return f"{self.role}_{self.protocol}"

    @property
    def user(self) -> str:
        """A user of this cell alone."""
        return re.sub("[^a-z0-9]", "", str(self).lower())

    @property
    def expected(self) -> str:
        """What a client meets."""
        return OUTCOMES[self.mechanism, self.case]


def cells() -> Iterable[Cell]:
    """Yield all."""
    for role in ROLES:
        for case in CASES:
            if case in {"good", "bad"}:  # nothing expires without credentials
                yield Cell("PLAINTEXT", role, "none", case)
            yield Cell("SSL", role, "certificate", case)
            for protocol in PROTOCOLS[2:]:
                for mechanism in MECHANISMS:
                    yield Cell(protocol, role, mechanism, case)


CELLS: Final = tuple(cells())


class Client(Peer):
    """A connection with whatever the listener's protocol wants."""

    def __init__(self, site: Site, cell: Cell, certificate: str) -> None:
        super().__init__(site.addresses[cell.listener])
        if cell.protocol in {"SSL", "SASL_SSL"}:
            context = ssl.create_default_context(cafile=str(site.path / "ca.pem"))
            context.load_cert_chain(site.path / f"{certificate}.pem")
            self.sock = context.wrap_socket(self.sock, server_hostname=HOST)

    def served(self) -> str:
        """Whether an ordinary request is answered."""
        return "in" if self.ask(_VERSIONS, 3).error_code == 0 else "refused"

    def log_in(self, login: MechanismLogin | None) -> str:
        """Return how a login goes."""
        assert login is not None
        response = None
        try:
            while (request := login.next_request(response)) is not None:
                response = self.ask(request, _version(request))
        except KafkaError as error:
            self._await_end()
            return f"{error.code.value} {error.message}, closed"
        return self.served()

    def _await_end(self) -> None:
        with suppress(ConnectionError, ssl.SSLError):
            assert not self.sock.recv(1)


def _version(request: Request) -> int:
    return 1 if isinstance(request, SaslHandshakeRequest) else 2


def met(conversation: Callable[[], str]) -> str:
    """Return what a part of a conversation ends with."""
    try:
        return conversation()
    except _ENDED:
        return "closed"


class Account:
    """The credentials of a cell's user: how to log in with them, and how they are taken away."""

    def __init__(self, site: Site, cell: Cell) -> None:
        self.site, self.cell = site, cell
        self.begin: Callable[[], MechanismLogin | None]
        getattr(self, f"_{cell.mechanism.partition('-')[0].lower()}")()

    def _plain(self) -> None:
        self._by_password("PLAIN", self.cell.user, self.cell.user)

    def _scram(self) -> None:
        self.site.set_password(self.cell.user, self.cell.mechanism)
        self._by_password(self.cell.mechanism, self.cell.user, self.cell.user)

    def _token(self) -> None:
        lifetime_ms = SESSION_S * 1000 if self.cell.case == "expired" else -1
        token = self.token = self.site.admin.create_delegation_token(max_lifetime_ms=lifetime_ms)
        self._by_password("SCRAM-SHA-256", token.token_id, token.password, is_token=True)

    def _by_password(
        self, mechanism: str, user: str, password: str, *, is_token: bool = False
    ) -> None:
        if self.cell.case == "bad":
            password = "wrong"
        nonce = secrets.token_hex
        self.begin = lambda: make_mechanism_login(
            mechanism, user, password, nonce(9), is_token=is_token
        )

    def _oauthbearer(self) -> None:
        now_s = self.site.now_ms() // 1000
        audience = "others" if self.cell.case == "bad" else "kafka"
        ends_s = now_s + SESSION_S
        jwt = signed(sub=self.cell.user, iat=now_s - 1, exp=ends_s, aud=audience)
        self.begin = lambda: token_login(jwt)

    def _gssapi(self) -> None:
        centre = self.site.centre
        ends_s = centre.now_s + TICKET_S
        key = "another" if self.cell.case == "bad" else centre.keys[SERVICE]
        self.begin = lambda: kerberos_login(
            lambda: Context(centre, sends=([f"{self.cell.user}@{REALM}", ends_s], key)), ""
        )

    def revoke(self) -> None:
        """Take the credentials away; providers and Kerberos give no new ones."""
        cell = self.cell
        if cell.mechanism == "PLAIN":
            name = f"listener.name.{cell.listener.lower()}.plain.sasl.jaas.config"
            self.site.set_config(name, users_text(set(self.site.users) - {cell.user}))
        elif cell.mechanism == "TOKEN":
            self.site.admin.expire_delegation_token(self.token.hmac)
        elif cell.mechanism.startswith("SCRAM"):
            self.site.forget_password(cell.user, cell.mechanism)


def converse(site: Site, cell: Cell) -> Conversation:
    """Return the conversation of a cell, which yields three times at most.

    Before the first login, after what was taken away, and before a session's time passes.
    """
    if cell.mechanism == "none":
        return _open(site, cell)
    if cell.mechanism == "certificate":
        return _by_certificate(site, cell)
    return _by_login(site, cell)


def _open(site: Site, cell: Cell) -> Conversation:
    yield
    client = Client(site, cell, "client")
    if cell.case == "good":
        return met(client.served)
    answer = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    return f"{answer.error_code}; {met(client.served)}"


def _by_certificate(site: Site, cell: Cell) -> Conversation:
    name = {"bad": "foreign", "expired": "expired"}.get(cell.case, "client")

    def connect() -> str:
        return Client(site, cell, name).served()

    yield
    if cell.case != "revoked":
        return met(connect)
    client = Client(site, cell, name)
    before = met(client.served)
    setting = f"listener.name.{cell.listener.lower()}.ssl.truststore.location"
    site.set_config(setting, str(site.path / "other.pem"))
    yield
    return f"{before}; {met(client.served)}; {met(connect)}"


def _by_login(site: Site, cell: Cell) -> Conversation:
    account = Account(site, cell)
    yield
    client = Client(site, cell, "client")
    before = met(lambda: client.log_in(account.begin()))
    if cell.case in {"good", "bad"}:
        return before
    if cell.case == "expired":
        yield
        yield
        again = met(lambda: Client(site, cell, "client").log_in(account.begin()))
        return f"{before}; {met(client.served)}; {again}"
    account.revoke()
    yield
    still = met(client.served)
    yield
    return f"{before}; {still}; {met(lambda: client.log_in(account.begin()))}"


def settle(site: Site) -> None:
    """Wait until all changes so far count on all listeners."""
    user = f"marker{secrets.token_hex(4)}"
    site.set_password(user, "SCRAM-SHA-256")
    for listener in site.addresses:
        role, _, protocol = listener.partition("_")
        if protocol == "SASL_SSL":
            wait_for(partial(_is_known, site, Cell(protocol, role, "SCRAM-SHA-256", "good"), user))


def _is_known(site: Site, cell: Cell, user: str) -> bool:
    login = make_mechanism_login(cell.mechanism, user, user, secrets.token_hex(9))
    return met(lambda: Client(site, cell, "client").log_in(login)) == "in"


def run_cells(site: Site, chosen: Iterable[Cell]) -> dict[Cell, str]:
    """Return what each cell's client meets."""
    found: dict[Cell, str] = {}
    waiting = {cell: converse(site, cell) for cell in chosen}
    for between in (lambda: settle(site), lambda: settle(site), site.pass_time, None):
        for cell, conversation in tuple(waiting.items()):
            try:
                next(conversation)
            except StopIteration as end:
                found[cell] = end.value
                del waiting[cell]
        if between is not None:
            between()
    assert not waiting
    return found
