"""Ottla's own settings of the metrics endpoint; Kafka has no counterpart.

Kafka: none; JMX exporters are configured separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.checks import MAX_PORT, one_of
from ottla.config.definition import LOW, ConfigTable, Text, key
from ottla.config.problems import invalid
from ottla.config.secret import Secret

if TYPE_CHECKING:
    from ottla.config.problems import ConfigProblem


LOOPBACK: Final = "127.0.0.1"
ADDRESS_FORM: Final = f"HOST:PORT, :PORT for all interfaces, or PORT for {LOOPBACK}"


class MetricsAddress(NamedTuple):
    """Where the endpoint listens; an empty host is all interfaces, port 0 a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        """As `read_address` reads it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(text: str) -> MetricsAddress | None:
    """Return the address that a text of `ADDRESS_FORM` names; None for another text."""
    host, separator, port = text.removeprefix("http://").rpartition(":")
    if not (port.isascii() and port.isdecimal()) or int(port) > MAX_PORT:
        return None
    if not separator:
        return MetricsAddress(LOOPBACK, int(port))
    return MetricsAddress(host.removeprefix("[").removesuffix("]"), int(port))


class MetricsSettings(ConfigTable):
    """Where metrics and probes are served, and under which names."""

    metrics_listener: Text = key(
        "", "Address of /metrics and the probes: [HOST:]PORT; empty disables both.", importance=LOW
    )
    metrics_basic_auth_password: Secret | None = key(None, "Password of that user.", importance=LOW)
    metrics_basic_auth_username: Text = key(
        "",
        "User that must log in for /metrics; empty: no login. Probes need no login.",
        importance=LOW,
    )
    metrics_ssl_keystore_location: Text | None = key(
        None, "PEM file with key and certificates; with it the endpoint is HTTPS.", importance=LOW
    )
    metrics_ssl_key_password: Secret | None = key(
        None, "Password of the private key in that file.", importance=LOW
    )
    metrics_names: Text = key(
        "classic",
        "Spelling of Kafka's metrics: classic (JMX exporter), reporter (metrics reporter), both.",
        one_of("classic", "reporter", "both"),
        LOW,
    )
    metrics_partition_level: Text = key(
        "auto",
        "Whether partitions have series of their own: partition, topic (none), or auto: while "
        "this node holds at most 20,000.",
        one_of("auto", "partition", "topic"),
        LOW,
    )

    @property
    def address(self) -> MetricsAddress | None:
        """The address to listen on; None when disabled or invalid."""
        return read_address(self.metrics_listener)

    @property
    def address_problems(self) -> list[ConfigProblem]:
        """The problems of the address."""
        if bool(self.metrics_basic_auth_username) != bool(self.metrics_basic_auth_password):
            name = "metrics.basic.auth.username"
            return [invalid(name, self.metrics_basic_auth_username, "give the password, too")]
        if not self.metrics_listener or self.address is not None:
            return []
        return [invalid("metrics.listener", self.metrics_listener, f"write {ADDRESS_FORM}")]
