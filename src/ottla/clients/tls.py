"""TLS settings of a client.

Kafka: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory (KIP-651).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    import ssl

    from ottla.clients.settings import ValidatedSettings


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
    from ottla.network.tls_context import PEM, TlsError, client_context, tls_settings

    _check_stores(settings, PEM)
    try:
        return client_context(tls_settings(lambda name: getattr(settings, name.replace(".", "_"))))
    except TlsError as error:
        raise _invalid(str(error)) from error


def _check_stores(settings: ValidatedSettings, pem: str) -> None:
    """Raise the errors that Kafka raises for stores of the type `pem`."""
    key, chain = settings.ssl_keystore_key, settings.ssl_keystore_certificate_chain
    if settings.ssl_keystore_location and (key or chain):
        raise _invalid("Both SSL key store location and separate private key are specified.")
    if bool(key) != bool(chain):
        given, other = ("private key", "certificate chain")[:: 1 if key else -1]
        raise _invalid(f"SSL {given} is specified, but {other} is not specified.")
    for store in ("ssl_keystore", "ssl_truststore"):
        if getattr(settings, f"{store}_type").upper() == pem and getattr(
            settings, f"{store}_password"
        ):
            name = store.replace("_", ".")
            raise _invalid(f"{name}.password cannot be specified for PEM format")


def _invalid(text: str) -> KafkaError:
    return ConfigError(text)
