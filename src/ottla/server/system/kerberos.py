"""Kerberos on a node: logins of clients by its keytab, and its own tickets for other nodes.

Kafka: org.apache.kafka.common.security.kerberos.KerberosLogin,
org.apache.kafka.common.security.authenticator.SaslServerAuthenticator.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import ConfigError
from ottla.network import kerberos
from ottla.security.sasl.client import kerberos_login
from ottla.security.sasl.gssapi import ContextFailed, GssapiServer, parse_kerberos_rules, parse_name

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from ottla.security.sasl.client import MechanismLogin
    from ottla.security.sasl.mechanism import Mechanism

    Run = Callable[[Callable[[], Any], Callable[[Any, Exception | None], None]], None]

log = logging.getLogger("ottla.login")
_RETRY_S: Final = 10.0
_MAX_WAIT_S: Final = 86_400.0


class KerberosSettings(NamedTuple):
    """The Kerberos settings of a listener."""

    options: Mapping[str, str]
    """Options of the JAAS text: Krb5LoginModule with keyTab and principal."""
    service_name: str | None
    rules: Sequence[str]
    renewal: kerberos.Renewal


def acceptor(settings: KerberosSettings) -> Callable[[], Mechanism]:
    """Return the factory of clients' logins; ConfigError when it cannot be made."""
    library = kerberos.system_kerberos()
    login = _node_login(settings)
    try:
        rules = parse_kerberos_rules(settings.rules, library.default_realm())
        begin = library.acceptor(*login)
    except (ContextFailed, ValueError) as error:
        raise ConfigError(str(error)) from error
    return lambda: GssapiServer(begin(), rules)


def _node_login(settings: KerberosSettings) -> tuple[str, str]:
    """Return principal and keytab: a node cannot be asked for a password."""
    login = kerberos.kerberos_login(settings.options)
    if login.keytab is None or login.principal is None:
        raise ConfigError("a node needs useKeyTab=true, keyTab and principal of Krb5LoginModule")
    kerberos.service_name(settings.options, settings.service_name)
    try:
        parse_name(login.principal)
    except ValueError as error:
        text = f"Principal has name with unexpected format {login.principal}"
        raise ConfigError(text) from error
    return login.principal, login.keytab


class PeerTickets:
    """The tickets for one listener of other nodes, renewed by workers."""

    def __init__(
        self,
        settings: KerberosSettings,
        *,
        run: Run,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
    ) -> None:
        """Fetch the first tickets; ConfigError without any. run(job, done) uses a worker."""
        library = kerberos.system_kerberos()
        self._principal, _ = _node_login(settings)
        service = kerberos.service_name(settings.options, settings.service_name)
        login = kerberos.kerberos_login(settings.options)
        try:
            self._tickets = kerberos.Tickets(library, login, service, settings.renewal)
        except ContextFailed as error:
            text = f"this node has no ticket to log in with at other nodes: {error}"
            raise ConfigError(text) from error
        self._run = run
        self._loop = loop
        self._rng = rng
        self._wait(self._renewal_s())

    def login(self, host: str) -> MechanismLogin:
        """Begin a login at a host."""
        return kerberos_login(partial(self._tickets.begin, host), self._principal)

    async def prepare(self, host: str) -> None:
        """Get the ticket for a host, in a worker."""
        done: asyncio.Future[None] = self._loop.create_future()

        def prepared(_: None, error: Exception | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._run(partial(self._tickets.prepare, host), prepared)
        await done

    def _renewal_s(self) -> float:
        try:
            return self._tickets.seconds_to_renewal(self._rng.random())
        except ContextFailed:
            return _RETRY_S

    def _wait(self, seconds: float) -> None:
        self._loop.call_later(min(seconds, _MAX_WAIT_S), self._renew)

    def _renew(self) -> None:
        self._run(self._renewed_s, self._renewed)

    def _renewed_s(self) -> float:
        """Get new tickets; return the time until they should be renewed."""
        self._tickets.renew()
        return self._renewal_s()

    def _renewed(self, seconds: float | None, error: Exception | None) -> None:
        if seconds is not None:
            self._wait(seconds)
        elif isinstance(error, ContextFailed):
            text = "the tickets of this node were not renewed; the last ones stay in use: %s"
            log.warning(text, error, extra={"event": "login.ticket_not_renewed"})
            self._wait(_RETRY_S)
        elif error is not None:
            raise error
