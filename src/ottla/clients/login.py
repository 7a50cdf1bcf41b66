"""Client-side SASL: a new login for each connection, from the client's settings.

Kafka: org.apache.kafka.common.security.authenticator.LoginManager.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

from ottla.clients.kerberos import KerberosLogins
from ottla.errors import ConfigError
from ottla.security.jaas import parse_jaas
from ottla.security.sasl.client import make_mechanism_login, token_login
from ottla.security.sasl.gssapi import GSSAPI
from ottla.security.sasl.oauthbearer import OAUTHBEARER

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.settings import ValidatedSettings
    from ottla.security.sasl.client import MechanismLogin


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
