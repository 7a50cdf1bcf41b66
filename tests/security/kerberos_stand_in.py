"""A stand-in for the system's Kerberos: the same interface, with keys in text files.

A keytab is a file of lines "principal key"; a centre knows the right keys. A ticket is JSON signed
with the key of the service.
"""

from __future__ import annotations

import hmac
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.security.sasl.gssapi import ContextFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.network.kerberos import KerberosLogin

REALM = "OTTLA.TEST"
TICKET_S = 100


class Centre:
    """The centre of a realm, and the library of all its hosts."""

    def __init__(self, keys: dict[str, str]) -> None:
        """Take the keys by principal."""
        self.keys = keys
        self.now_s = 0
        self.asked: list[tuple[str, str]] = []
        """Who had a ticket for which service."""
        self.is_reachable = True

    def default_realm(self) -> str:
        """Return the realm."""
        return REALM

    def acceptor(self, principal: str, keytab: str) -> Callable[[], Context]:
        """Return what begins a login at a service."""
        key = _key(keytab, principal)
        return lambda: Context(self, accepts=(principal, key))

    def initiator(self, login: KerberosLogin, _number: int) -> Credentials:
        """Get tickets by a keytab, or of a cache: a file with the name of the principal."""
        if login.keytab is None:
            return Credentials(self, Path(login.cache or "").read_text(), TICKET_S)
        assert login.principal is not None
        if not self.is_reachable:
            raise ContextFailed("Cannot contact any KDC for realm")
        if _key(login.keytab, login.principal) != self.keys.get(login.principal):
            raise ContextFailed("Preauthentication failed")
        return Credentials(self, login.principal, self.now_s + TICKET_S)


def _key(keytab: str, principal: str) -> str:
    try:
        lines = [line.split(" ", 1) for line in Path(keytab).read_text().splitlines()]
    except OSError as error:
        raise ContextFailed(f"Key table file '{keytab}' not found") from error
    keys = dict(line for line in lines if len(line) == 2)
    if principal not in keys:
        raise ContextFailed(f"No key table entry found for {principal}")
    return keys[principal]


class Credentials:
    """Tickets of one principal."""

    def __init__(self, centre: Centre, principal: str, expires_s: int) -> None:
        self._centre = centre
        self._principal = principal
        self._expires_s = expires_s

    def lifetime_s(self) -> float:
        """Return how long they are valid."""
        return max(self._expires_s - self._centre.now_s, 0)

    def context(self, service: str, host: str) -> Context:
        """Begin a login at a service."""
        name = f"{service}/{host}@{REALM}"
        self._centre.asked.append((self._principal, name))
        if self.lifetime_s() <= 0:
            raise ContextFailed("Ticket expired")
        if name not in self._centre.keys:
            raise ContextFailed(f"Server {name} not found in Kerberos database")
        ticket: list[str | int] = [self._principal, self._expires_s]
        return Context(self._centre, sends=(ticket, self._centre.keys[name]))


class Context:
    """One side of a login: the client's token, the service's answer, then signed messages."""

    def __init__(
        self,
        centre: Centre,
        *,
        accepts: tuple[str, str] | None = None,
        sends: tuple[list[str | int], str] | None = None,
    ) -> None:
        self._centre = centre
        self._accepts = accepts
        self._sends = sends
        self._key = b""
        self.is_complete = False
        self.initiator = ""

    def step(self, token: bytes | None) -> bytes:
        """Take the other side's token."""
        if self._accepts is not None:
            return self._accept(token or b"")
        assert self._sends is not None
        ticket, key = self._sends
        self._key = key.encode()
        if token is None:
            return self.wrap(json.dumps(ticket).encode())
        if self.unwrap(token) != b"known":
            raise ContextFailed("another answer")
        self.is_complete = True
        return b""

    def _accept(self, token: bytes) -> bytes:
        assert self._accepts is not None
        _, key = self._accepts
        self._key = key.encode()
        name, expires_s = json.loads(self.unwrap(token))
        if expires_s <= self._centre.now_s:
            raise ContextFailed("Ticket expired")
        self.initiator, self.is_complete = name, True
        return self.wrap(b"known")

    def wrap(self, message: bytes) -> bytes:
        """Sign a message."""
        return hmac.digest(self._key, message, "sha256") + message

    def unwrap(self, message: bytes) -> bytes:
        """Check a signed message and return it."""
        found = message[32:]
        if not hmac.compare_digest(message[:32], hmac.digest(self._key, found, "sha256")):
            raise ContextFailed("Cannot find key of the message")
        return found
