"""Client-side SASL: a new login for each connection, from the client's settings.

Kafka: org.apache.kafka.common.security.authenticator.LoginManager,
.kerberos.KerberosLogin, .oauthbearer.internals.expiring.ExpiringCredentialRefreshingLogin.

Kerberos tickets come from a keytab (`useKeyTab=true` in the JAAS text) or from a cache that `kinit`
filled.
"""

from __future__ import annotations

import logging
import secrets
import subprocess
import threading
import weakref
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.network import kerberos
from ottla.security.jaas import parse_jaas
from ottla.security.sasl.client import kerberos_login, make_mechanism_login, token_login
from ottla.security.sasl.gssapi import GSSAPI, ContextFailed
from ottla.security.sasl.oauthbearer import OAUTHBEARER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clients.settings import ValidatedSettings
    from ottla.security.sasl.client import MechanismLogin

_log = logging.getLogger("ottla.clients.login")
_RETRY_S: Final = 10.0
_KINIT_LIMIT_S: Final = 60.0


def login_factory(settings: ValidatedSettings) -> Callable[[str], MechanismLogin] | None:
    """Return what begins a login at a host, None if the security protocol needs none."""
    if not settings.security_protocol.startswith("SASL"):
        return None
    if settings.sasl_mechanism == OAUTHBEARER:
        return _token_logins(settings)
    if settings.sasl_mechanism == GSSAPI:
        return KerberosLogins(settings, jaas_options(settings))
    make_login(settings)  # report an invalid setting now, not on the first connection
    return lambda _host: make_login(settings)


def _token_logins(settings: ValidatedSettings) -> Callable[[str], MechanismLogin]:
    from ottla.clients.oauth import TokenSource

    source = TokenSource(settings)
    return lambda _host: token_login(source.token)


def make_login(settings: ValidatedSettings) -> MechanismLogin:
    """Return a new login; ConfigError for incomplete settings."""
    username, password, is_token = credentials(settings)
    mechanism, nonce = settings.sasl_mechanism, secrets.token_urlsafe(18)
    login = make_mechanism_login(mechanism, username, password, nonce, is_token=is_token)
    if login is not None:
        return login
    raise ConfigError(
        f"sasl.mechanism: {mechanism} is none of PLAIN, SCRAM-SHA-256/512, OAUTHBEARER and GSSAPI",
    )


class Credentials(NamedTuple):
    """A client's user name and password."""

    username: str
    password: str
    is_token: bool = False
    """Whether they are id and HMAC of a delegation token (tokenauth)."""

    def __repr__(self) -> str:
        return f"Credentials({self.username})"


def credentials(settings: ValidatedSettings) -> Credentials:
    """Return user name and password, from sasl.username/password or a JAAS line."""
    if settings.sasl_username is not None and settings.sasl_password is not None:
        return Credentials(settings.sasl_username, settings.sasl_password.reveal())
    found = jaas_options(settings)
    if {"username", "password"} <= set(found):
        is_token = found.get("tokenauth", "").lower() == "true"
        return Credentials(found["username"], found["password"], is_token)
    raise ConfigError(
        "SASL needs sasl_username and sasl_password (or sasl.jaas.config with both in quotes)",
    )


def jaas_options(settings: ValidatedSettings) -> dict[str, str]:
    """Return the options of sasl.jaas.config; ConfigError says what is wrong with it."""
    if not settings.sasl_jaas_config:
        return {}
    try:
        return parse_jaas(settings.sasl_jaas_config.reveal()).options
    except ValueError as error:
        raise ConfigError(f"sasl.jaas.config: {error}") from error


class _Renewable(Protocol):
    """A credential that expires."""

    def renew(self) -> bool:
        """Get a new one; False when that fails and the current one stays."""

    def seconds_to_renewal(self) -> float:
        """Return the time until it should be renewed."""


def keep_renewed(credential: _Renewable, name: str, retry_s: float) -> None:
    """Renew a credential in a thread of that name until it is garbage-collected."""
    ended = threading.Event()
    weakref.finalize(credential, ended.set)
    threading.Thread(
        target=_renew, args=(weakref.ref(credential), ended, retry_s), name=name, daemon=True
    ).start()


def _renew(credential: weakref.ref[_Renewable], ended: threading.Event, retry_s: float) -> None:
    is_renewed = True
    while True:
        held = credential()
        if held is None:
            return
        wait_s = held.seconds_to_renewal() if is_renewed else retry_s
        del held
        if ended.wait(min(wait_s, threading.TIMEOUT_MAX)):
            return
        held = credential()
        try:
            is_renewed = held is None or held.renew()
        except Exception:  # noqa: BLE001 - files and plug-ins are the user's: try again
            _log.exception("cannot renew the credential")
            is_renewed = False
        del held


class KerberosLogins:
    """Begins logins at hosts; a thread renews the tickets until the client is gone."""

    def __init__(self, settings: ValidatedSettings, options: Mapping[str, str]) -> None:
        """Get the first tickets; ConfigError for incomplete settings, KafkaError without any."""
        try:
            self._login = kerberos.kerberos_login(options)
            service = kerberos.service_name(options, settings.sasl_kerberos_service_name)
        except ConfigError as error:
            raise ConfigError(f"sasl.mechanism=GSSAPI: {error}") from error
        self._kinit = settings.sasl_kerberos_kinit_cmd
        renewal = kerberos.Renewal(
            settings.sasl_kerberos_ticket_renew_window_factor,
            settings.sasl_kerberos_ticket_renew_jitter,
            settings.sasl_kerberos_min_time_before_relogin / 1000,
        )
        try:
            library = kerberos.system_kerberos()
            self._tickets = kerberos.Tickets(library, self._login, service, renewal)
        except ContextFailed as error:
            text = f"no ticket for GSSAPI: {error}"
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, text) from error
        self.prepare = self._tickets.prepare
        """Gets the ticket for a host, before a connection to it is opened."""
        keep_renewed(self, "ottla-tickets", _RETRY_S)

    def __call__(self, host: str) -> MechanismLogin:
        """Begin a login at a host."""
        return kerberos_login(partial(self._tickets.begin, host), self._login.principal or "")

    def renew(self) -> bool:
        """Get new tickets; the current ones stay when that fails."""
        try:
            if self._login.keytab is None:
                cache = [] if self._login.cache is None else ["-c", self._login.cache]
                command = [self._kinit, "-R", *cache]
                subprocess.run(command, check=True, capture_output=True, timeout=_KINIT_LIMIT_S)  # noqa: S603 - the client's own setting
            self._tickets.renew()
        except (ContextFailed, OSError, subprocess.SubprocessError) as error:
            _log.warning("cannot renew the Kerberos tickets: %s", error)
            return False
        return True

    def seconds_to_renewal(self) -> float:
        """Return the time until the tickets should be renewed."""
        try:
            return self._tickets.seconds_to_renewal(SystemRandom().random())
        except ContextFailed:
            return _RETRY_S
