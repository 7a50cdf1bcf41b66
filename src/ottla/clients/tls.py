"""TLS settings of a client.

Kafka: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory (KIP-651).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    import ssl

    from ottla.clients.settings import ValidatedSettings

log = logging.getLogger("ottla.clients")
_TYPES: Final = {
    "ssl.keystore.type": "ssl_keystore_location",
    "ssl.truststore.type": "ssl_truststore_location",
}
"""The settings with the types of stores, and the attributes with their files."""


def client_context(settings: ValidatedSettings) -> ssl.SSLContext | None:
    """Return the context for the security protocol, None for PLAINTEXT.

    Raises ConfigError for stores that are not readable.
    """
    if not settings.security_protocol.endswith("SSL"):
        return None
    if settings.ssl_context is not None:
        context: ssl.SSLContext = settings.ssl_context
        return context
    return _context(settings)


def _context(settings: ValidatedSettings) -> ssl.SSLContext:
    # not for clients in plain text: cryptography's import takes longer than the rest of a client's
    from ottla.network.tls_context import (
        PEM,
        TlsError,
        client_context,
        detected_type,
        exposed_key,
        tls_settings,
    )

    def value(name: str) -> Any:
        found = getattr(settings, name.replace(".", "_"))
        # Kafka's default is JKS, so its files name no type for these stores; texts are PEM.
        if name in _TYPES and name not in settings.given:
            location = getattr(settings, _TYPES[name])
            return found if location is None else detected_type(location)
        return found

    _check_stores(settings, {name for name in _TYPES if value(name).upper() == PEM})
    try:
        made = tls_settings(value)
        exposed = exposed_key(made.keys)
        if exposed is not None:
            log.warning("[%s] %s", settings.client_id, exposed)
        return client_context(made)
    except TlsError as error:
        raise _invalid(str(error)) from error


def _check_stores(settings: ValidatedSettings, of_pem: set[str]) -> None:
    """Raise the errors that Kafka raises for stores of the type PEM, whose settings are given."""
    key, chain = settings.ssl_keystore_key, settings.ssl_keystore_certificate_chain
    if settings.ssl_keystore_location and (key or chain):
        raise _invalid("Both SSL key store location and separate private key are specified.")
    if bool(key) != bool(chain):
        given, other = ("private key", "certificate chain")[:: 1 if key else -1]
        raise _invalid(f"SSL {given} is specified, but {other} is not specified.")
    for store in ("ssl_keystore", "ssl_truststore"):
        name = store.replace("_", ".")
        if f"{name}.type" in of_pem and getattr(settings, f"{store}_password"):
            raise _invalid(f"{name}.password cannot be specified for PEM format")


def _invalid(text: str) -> KafkaError:
    return ConfigError(text)
