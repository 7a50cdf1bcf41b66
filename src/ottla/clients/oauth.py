"""Tokens of a client for OAUTHBEARER: fetched at its start and renewed while it runs.

They come from a provider, for a client id and secret or a signed assertion, or from a file.

Kafka: org.apache.kafka.common.security.oauthbearer.internals.expiring.
ExpiringCredentialRefreshingLogin (KIP-768, KIP-1139).
"""

from __future__ import annotations

import logging
import secrets
import time
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.arguments import named_object
from ottla.clients.login import jaas_options, keep_renewed
from ottla.clients.tls import client_context
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.network.fetching import FetchFailed
from ottla.network.token_retrieval import TokenSettings, seconds_to_renewal, token_retriever

if TYPE_CHECKING:
    from ottla.clients.settings import ValidatedSettings

log = logging.getLogger("ottla.clients.login")
_RETRY_S: Final = 1.0


class TokenSource:
    """The current token of one client; a thread renews it until the client is gone."""

    def __init__(self, settings: ValidatedSettings) -> None:
        """Fetch the first token; ConfigError for incomplete settings, KafkaError without one."""
        self._settings = _token_settings(settings)
        self._fetch = token_retriever(self._settings)
        self.token = self._fetched()
        keep_renewed(self, "ottla-token", _RETRY_S)

    def _fetched(self) -> str:
        try:
            return self._fetch()
        except FetchFailed as error:
            text = f"no token for OAUTHBEARER: {error}"
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, text) from error

    def renew(self) -> bool:
        """Fetch a new token; the current one stays when that fails."""
        try:
            self.token = self._fetched()
        except KafkaError as error:
            log.warning("cannot renew the token: %s", error)
            return False
        return True

    def seconds_to_renewal(self) -> float:
        """Return the time until the token should be renewed, well before it expires."""
        return seconds_to_renewal(self._settings, self.token, SystemRandom().random())


def _token_settings(settings: ValidatedSettings) -> TokenSettings:
    texts = (
        settings.org_apache_kafka_sasl_oauthbearer_allowed_urls,
        settings.org_apache_kafka_sasl_oauthbearer_allowed_files,
    )
    urls, files = ([part.strip() for part in (text or "").split(",") if part] for text in texts)
    return TokenSettings(
        lambda name: getattr(settings, name.replace(".", "_")),
        jaas_options(settings),
        (urls, files),
        lambda: client_context(settings),
        time.time,
        lambda: secrets.token_urlsafe(16),
        partial(_plugin, settings),
    )


def _plugin(settings: ValidatedSettings, setting: str, method: str) -> Any:
    """Make an object of the Python class that a setting names, and hand it the settings."""
    name = getattr(settings, setting.replace(".", "_"))
    found = named_object(setting, name)
    try:
        made = found()
        if not callable(getattr(made, method, None)):
            raise ConfigError(f"{setting}: {name} lacks: {method}")
        made.configure(vars(settings))
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"{setting}: {name!r} cannot be used ({error})") from error
    return made
