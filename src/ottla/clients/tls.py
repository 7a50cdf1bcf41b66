"""TLS settings of a client, from PEM files.

Kafka: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory (its PEM store type, KIP-651).
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.clients.settings import Settings


def client_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the context for the security protocol, None for plain text.

    Raises KafkaError(INVALID_CONFIG) for stores that are not PEM or cannot be read.
    """
    if not settings.security_protocol.endswith("SSL"):
        return None
    if settings.ssl_context is not None:
        context: ssl.SSLContext = settings.ssl_context
        return context
    for name in ("ssl_truststore_type", "ssl_keystore_type"):
        if getattr(settings, name).upper() != "PEM":
            dotted = name.replace("_", ".")
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{dotted}: only PEM is read here; convert the store with keytool and openssl",
            )
    try:
        return _pem_context(settings)
    except (OSError, ssl.SSLError) as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"cannot read the TLS files: {error.strerror or error}"
        ) from error


def _pem_context(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=settings.ssl_truststore_location, cadata=settings.ssl_truststore_certificates
    )
    context.check_hostname = bool(settings.ssl_endpoint_identification_algorithm)
    if settings.ssl_keystore_location:
        context.load_cert_chain(settings.ssl_keystore_location, password=settings.ssl_key_password)
    return context
