"""Kerberos tickets: principals, keytabs and renewal.

The library is behind `Kerberos`; its calls may wait for a key distribution centre, so they run in
a worker. `Tickets.begin` does not wait once `prepare` has got the ticket for a host.

Kafka: org.apache.kafka.common.security.kerberos.KerberosLogin,
com.sun.security.auth.module.Krb5LoginModule of Java.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.errors import ConfigError
from ottla.network.fetching import regular_file
from ottla.security.sasl.gssapi import ContextFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.security.sasl.gssapi import SecurityContext

SERVICE_NAME: Final = "sasl.kerberos.service.name"
_MISSING: Final = "GSSAPI needs a library that is not installed: pip install gssapi"


class KerberosLogin(NamedTuple):
    """The options of a JAAS entry: a key in a keytab, or tickets in a cache."""

    principal: str | None
    keytab: str | None
    cache: str | None
    """None for the user's default cache."""


class KerberosCredentials(Protocol):
    """The tickets of a client."""

    def context(self, service: str, host: str) -> SecurityContext:
        """Begin a login at a service; raises ContextFailed."""

    def lifetime_s(self) -> float:
        """Return how long the tickets are valid, 0 when they have expired."""


class Kerberos(Protocol):
    """The library of the system."""

    def default_realm(self) -> str:
        """Return the realm of names without one, no text when there is none."""

    def acceptor(self, principal: str, keytab: str) -> Callable[[], SecurityContext]:
        """Return the function that begins a client's login; ContextFailed without the key."""

    def initiator(self, login: KerberosLogin, number: int) -> KerberosCredentials:
        """Get tickets, those of a keytab in a new cache; ContextFailed without any."""


class Renewal(NamedTuple):
    """When tickets are renewed: sasl.kerberos.ticket.renew.* and .min.time.before.relogin."""

    window_factor: float
    jitter: float
    min_time_s: float


class Tickets:
    """The tickets of a client, or of a node for its logins at other nodes."""

    def __init__(
        self, kerberos: Kerberos, login: KerberosLogin, service: str, renewal: Renewal
    ) -> None:
        """Get the first tickets; ContextFailed without any."""
        self._kerberos = kerberos
        self._login = login
        self._service = service
        self._renewal = renewal
        self._number = 0
        self._hosts: dict[str, None] = {}
        self._failures: dict[str, str] = {}
        self._credentials = kerberos.initiator(login, self._number)

    def prepare(self, host: str) -> None:
        """Get the ticket for a host; `begin` reports a failure."""
        try:
            if self._credentials.lifetime_s() <= 0:
                self.renew()
            self._credentials.context(self._service, host).step(None)
            self._hosts[host] = None
        except ContextFailed as error:
            self._failures[host] = str(error)

    def begin(self, host: str) -> SecurityContext:
        """Begin a login at a host; ContextFailed when it had no ticket."""
        failure = self._failures.pop(host, None)
        if failure is not None:
            raise ContextFailed(failure)
        return self._credentials.context(self._service, host)

    def renew(self) -> None:
        """Get new tickets, also for the known hosts; after ContextFailed the current ones stay."""
        number = 1 - self._number
        credentials = self._kerberos.initiator(self._login, number)
        for host in list(self._hosts):
            with suppress(ContextFailed):
                credentials.context(self._service, host).step(None)
        self._number, self._credentials = number, credentials

    def seconds_to_renewal(self, randomness: float) -> float:
        """Return the time until renewal; randomness lies between 0 and 1."""
        factor, jitter, min_time_s = self._renewal
        lifetime_s = self._credentials.lifetime_s()
        if lifetime_s <= min_time_s:
            return max(lifetime_s / 2, 1.0)
        return max(lifetime_s * min(factor + jitter * randomness, 1.0), min_time_s)


def kerberos_login(options: Mapping[str, str]) -> KerberosLogin:
    """Read the options of Krb5LoginModule; ConfigError when they name no key."""
    principal = options.get("principal")
    if options.get("useKeyTab", "").lower() != "true":
        return KerberosLogin(principal, None, options.get("ticketCache"))
    keytab = options.get("keyTab", "").removeprefix("file:")
    if not keytab or not principal:
        raise ConfigError("useKeyTab=true needs keyTab and principal")
    return KerberosLogin(principal, keytab, None)


def service_name(options: Mapping[str, str], setting: str | None) -> str:
    """Return the first part of the brokers' principals, with Kafka's errors."""
    named = options.get("serviceName")
    if named and setting and named != setting:
        raise ConfigError(
            f"Conflicting serviceName values found in JAAS and Kafka configs value in JAAS file "
            f"{named}, value in Kafka config {setting}"
        )
    if not named and not setting:
        raise ConfigError("No serviceName defined in either JAAS or Kafka config")
    return str(named or setting)


def _check_keytab(keytab: str) -> None:
    """Raise ContextFailed for a keytab that is no regular file; missing ones are the library's."""
    path = keytab.removeprefix("FILE:")
    if not path.startswith("/"):
        return  # another kind of keytab, as MEMORY:
    try:
        regular_file(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ContextFailed(f"the keytab {path}: {error.strerror}") from error


def system_kerberos() -> Kerberos:
    """Return the library; ConfigError names the extra when it is not installed."""
    try:
        return SystemKerberos(import_module("gssapi"))
    except ImportError as error:
        raise ConfigError(_MISSING) from error


class SystemKerberos:
    """Kerberos by python-gssapi."""

    def __init__(self, gssapi: Any) -> None:
        self._gssapi = gssapi
        self._mechanism = gssapi.MechType.kerberos
        self._secret = secrets.token_hex(8)
        """Part of the cache names, since memory caches are shared by the whole process."""

    def default_realm(self) -> str:
        """Return the realm of names without one."""
        gssapi = self._gssapi
        try:
            name = gssapi.Name("user", gssapi.NameType.user).canonicalize(self._mechanism)
        except gssapi.exceptions.GSSError:
            return ""
        return str(name).rpartition("@")[2]

    def acceptor(self, principal: str, keytab: str) -> Callable[[], SecurityContext]:
        """Return the function that begins a client's login; it reads the keytab each time."""
        _check_keytab(keytab)
        credentials = self._credentials(principal, "accept", {"keytab": keytab})
        return lambda: SystemContext(
            self._gssapi, self._gssapi.SecurityContext(creds=credentials, usage="accept")
        )

    def initiator(self, login: KerberosLogin, number: int) -> SystemCredentials:
        """Get tickets; the key of a keytab gets new ones, in a cache in memory."""
        store = {} if login.cache is None else {"ccache": login.cache}
        if login.keytab is not None:
            _check_keytab(login.keytab)
            cache = f"MEMORY:ottla-{self._secret}-{hash(login):x}-{number}"
            store = {"client_keytab": login.keytab, "ccache": cache}
        found = self._credentials(login.principal, "initiate", store)
        made = SystemCredentials(self._gssapi, found, self._mechanism)
        if made.lifetime_s() <= 0:  # asking for it gets the ticket
            raise ContextFailed("the tickets have expired")
        return made

    def _credentials(self, principal: str | None, usage: str, store: dict[str, str]) -> Any:
        gssapi = self._gssapi
        try:
            name = None
            if principal is not None:
                name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            return gssapi.Credentials(
                name=name, usage=usage, mechs=[self._mechanism], store=store or None
            )
        except gssapi.exceptions.GSSError as error:
            raise ContextFailed(str(error)) from error


class SystemCredentials:
    """Tickets of python-gssapi."""

    def __init__(self, gssapi: Any, credentials: Any, mechanism: Any) -> None:
        self._gssapi = gssapi
        self._credentials = credentials
        self._mechanism = mechanism

    def context(self, service: str, host: str) -> SecurityContext:
        """Begin a login at a service."""
        gssapi = self._gssapi
        flags = gssapi.RequirementFlag
        try:
            made = gssapi.SecurityContext(
                name=gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service),
                creds=self._credentials,
                mech=self._mechanism,
                flags=[flags.mutual_authentication, flags.integrity],
                usage="initiate",
            )
        except gssapi.exceptions.GSSError as error:
            raise ContextFailed(str(error)) from error
        return SystemContext(gssapi, made)

    def lifetime_s(self) -> float:
        """Return how long the tickets are valid; asking gets the first one of a keytab."""
        gssapi = self._gssapi
        try:
            found = self._credentials.lifetime
        except gssapi.exceptions.ExpiredCredentialsError:
            return 0.0
        except gssapi.exceptions.GSSError as error:
            raise ContextFailed(str(error)) from error
        return float("inf") if found is None else float(found)


class SystemContext:
    """A context of python-gssapi."""

    def __init__(self, gssapi: Any, context: Any) -> None:
        self._error = gssapi.exceptions.GSSError
        self._context = context
        context.__DEFER_STEP_ERRORS__ = False  # a refused token is an error of its own step

    def step(self, token: bytes | None) -> bytes:
        """Take the other side's token; return the next one, or no bytes."""
        return bytes(self._called(self._context.step, token) or b"")

    @property
    def is_complete(self) -> bool:
        """Whether both sides are authenticated."""
        return bool(self._context.complete)

    @property
    def initiator(self) -> str:
        """The name of the client's principal."""
        return str(self._called(lambda: self._context.initiator_name))

    def wrap(self, message: bytes) -> bytes:
        """Sign a message."""
        return bytes(self._called(self._context.wrap, message, False).message)

    def unwrap(self, message: bytes) -> bytes:
        """Check a signed message and return it."""
        return bytes(self._called(self._context.unwrap, message).message)

    def _called(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._error as error:
            raise ContextFailed(str(error)) from error
