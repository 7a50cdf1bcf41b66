"""TLS settings of a client, from PEM files.

Kafka: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory (its PEM store type, KIP-651).
"""

from __future__ import annotations

import ssl
import tempfile
from typing import TYPE_CHECKING

from ottla.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from ottla.clients.settings import Settings


def client_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the context for the security protocol, None for PLAINTEXT.

    Raises ConfigError for stores that are not PEM or not readable.
    """
    if not settings.security_protocol.endswith("SSL"):
        return None
    if settings.ssl_context is not None:
        context: ssl.SSLContext = settings.ssl_context
        return context
    for name in ("ssl_truststore_type", "ssl_keystore_type"):
        if getattr(settings, name).upper() != "PEM":
            dotted = name.replace("_", ".")
            raise _invalid(
                f"{dotted}: only PEM is supported; convert the store with keytool and openssl"
            )
    _check_stores(settings)
    try:
        return _pem_context(settings)
    except (OSError, ssl.SSLError) as error:
        raise _invalid(f"cannot read the TLS files: {error.strerror or error}") from error


def _check_stores(settings: Settings) -> None:
    """Raise the errors that Kafka raises for PEM stores."""
    key, chain = settings.ssl_keystore_key, settings.ssl_keystore_certificate_chain
    if settings.ssl_keystore_location and (key or chain):
        raise _invalid("Both SSL key store location and separate private key are specified.")
    if bool(key) != bool(chain):
        given, other = ("private key", "certificate chain")[:: 1 if key else -1]
        raise _invalid(f"SSL {given} is specified, but {other} is not specified.")
    for name in ("ssl_keystore_password", "ssl_truststore_password"):
        if getattr(settings, name):
            raise _invalid(f"{name.replace('_', '.')} cannot be specified for PEM format")


def _pem_context(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=settings.ssl_truststore_location, cadata=settings.ssl_truststore_certificates
    )
    context.check_hostname = bool(settings.ssl_endpoint_identification_algorithm)
    versions = [_version(name) for name in settings.ssl_enabled_protocols]
    if versions:
        context.minimum_version, context.maximum_version = min(versions), max(versions)
    password = settings.ssl_key_password
    if settings.ssl_keystore_location:
        context.load_cert_chain(settings.ssl_keystore_location, password=password)
    elif settings.ssl_keystore_key:
        # OpenSSL reads only files: a temporary one, readable by its owner, removed after loading.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:
            both.write(f"{settings.ssl_keystore_key}\n{settings.ssl_keystore_certificate_chain}\n")
            both.flush()
            context.load_cert_chain(both.name, password=password)
    return context


def _version(name: str) -> ssl.TLSVersion:
    known = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    if name not in known:
        raise _invalid(f"ssl.enabled.protocols: {name!r} is none of {', '.join(known)}")
    return known[name]


def _invalid(text: str) -> KafkaError:
    return ConfigError(text)
