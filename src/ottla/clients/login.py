"""Client-side SASL: a new login for each connection, from the client's settings.

Kafka: org.apache.kafka.common.security.authenticator.LoginManager.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from ottla.errors import ConfigError
from ottla.security.sasl.client import make_mechanism_login

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.settings import Settings
    from ottla.security.sasl.client import MechanismLogin


def login_factory(settings: Settings) -> Callable[[], MechanismLogin] | None:
    """Return a factory of logins, None if the security protocol needs none."""
    if not settings.security_protocol.startswith("SASL"):
        return None
    make_login(settings)  # report an invalid setting now, not on the first connection
    return lambda: make_login(settings)


def make_login(settings: Settings) -> MechanismLogin:
    """Return a new login; ConfigError for incomplete settings."""
    username, password = credentials(settings)
    mechanism = settings.sasl_mechanism
    login = make_mechanism_login(mechanism, username, password, secrets.token_urlsafe(18))
    if login is not None:
        return login
    raise ConfigError(
        f"sasl.mechanism: {mechanism} is not supported; use PLAIN or SCRAM-SHA-256/512",
    )


def credentials(settings: Settings) -> tuple[str, str]:
    """Return user name and password, from sasl.username/password or a JAAS line."""
    if settings.sasl_username is not None and settings.sasl_password is not None:
        return settings.sasl_username, settings.sasl_password
    found = dict(
        re.findall(r'(username|password)\s*=\s*"([^"]*)"', settings.sasl_jaas_config or "")
    )
    if {"username", "password"} <= set(found):
        return found["username"], found["password"]
    raise ConfigError(
        "SASL needs sasl_username and sasl_password (or sasl.jaas.config with both in quotes)",
    )
