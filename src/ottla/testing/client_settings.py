"""Client settings for the broker of `--ottla-url`, with the names of each library.

Kafka: the files that its tools take as --command-config.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.clients.login import credentials
from ottla.clients.settings import ADMIN, read_settings
from ottla.clients.tls import client_context
from ottla.config.properties import PropertiesError, parse_properties
from ottla.testing.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.settings import ValidatedSettings

_LIBRDKAFKA = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.key.password": "ssl.key.password",
}
"""PEM files and texts; librdkafka has other names for them."""


def read_client_settings(path: str) -> dict[str, str]:
    """Return the settings of a properties file; raises ClusterError."""
    try:
        settings = parse_properties(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ClusterError(f"--ottla-config {path}: {error.strerror}") from None
    except (PropertiesError, UnicodeDecodeError) as error:
        raise ClusterError(f"--ottla-config {path}: {error}") from None
    settings.pop("bootstrap.servers", None)
    return settings


def of_confluent(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings as confluent-kafka takes them."""
    if not given:
        return {}
    settings = _parsed(given)
    found: dict[str, Any] = {"security.protocol": settings.security_protocol}
    if _has_login(settings):
        username, password, _ = credentials(settings)
        mechanism = settings.sasl_mechanism
        found |= {
            "sasl.mechanism": mechanism,
            "sasl.username": username,
            "sasl.password": password,
        }
    found |= {_LIBRDKAFKA[name]: value for name, value in given.items() if name in _LIBRDKAFKA}
    if "ssl.keystore.location" in given:  # a PEM file with both
        store = given["ssl.keystore.location"]
        found |= {"ssl.certificate.location": store, "ssl.key.location": store}
    if not settings.ssl_endpoint_identification_algorithm:
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def of_python_clients(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings as aiokafka and kafka-python take them."""
    if not given:
        return {}
    settings = _parsed(given)
    found: dict[str, Any] = {"security_protocol": settings.security_protocol}
    if _has_login(settings):
        username, password, _ = credentials(settings)
        found |= {
            "sasl_mechanism": settings.sasl_mechanism,
            "sasl_plain_username": username,
            "sasl_plain_password": password,
        }
    context = client_context(settings)
    return found if context is None else {**found, "ssl_context": context}


def _parsed(given: Mapping[str, str]) -> ValidatedSettings:
    return read_settings(ADMIN, given, {"bootstrap_servers": "localhost:9092"})


def _has_login(settings: ValidatedSettings) -> bool:
    protocol: str = settings.security_protocol
    return protocol.startswith("SASL")
