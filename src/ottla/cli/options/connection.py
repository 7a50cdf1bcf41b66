"""How a tool reaches the cluster: its flags, and settings from files and flags.

Kafka: org.apache.kafka.server.util.CommandDefaultOptions, the tools' --command-config.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.config.client import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from ottla.config.problems import nearest
from ottla.config.properties import PropertiesError, parse_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.clients.blocking import Admin

F = TypeVar("F", bound="Callable[..., Any]")

# Settings of Kafka's Java clients that mean nothing here: classes, JVM security, JMX.
_JAVA_ONLY = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")


def bootstrap_option(function: F) -> F:
    """Add --bootstrap-server."""
    return click.option(
        "--bootstrap-server", metavar="HOST:PORT,…", help="REQUIRED. The server(s) to connect to."
    )(function)


def require(value: object, name: str) -> None:
    """Refuse a call without a flag it needs, in Kafka's words."""
    if value in (None, "", ()):
        raise click.UsageError(f'Missing required argument "[{name}]"')


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """Read name=value flags."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise click.UsageError(f"Invalid command line properties: {pair}")
        settings[name.strip()] = value.strip()
    return settings


class SettingsFileError(click.ClickException):
    """A file of settings that cannot be read."""


def read_file(path: str | None) -> dict[str, str]:
    """Read a properties file of settings; none without a path."""
    if path is None:
        return {}
    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, PropertiesError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SettingsFileError(f"cannot read {path}: {reason}") from error


def usable(
    given: Mapping[str, Any],
    table: type[ClientConfig],
    known: Iterable[str],
    *,
    warn: bool = True,
) -> dict[str, Any]:
    """Keep the settings that our client has; warn of names that no client has.

    Settings that only Java's client has are passed over: files written for Kafka's tools work.
    """
    ours = set(known)
    for name in given:
        if warn and name not in table.keys and name not in ours:
            meant = nearest(name, [*table.keys, *ours])
            proposal = f"; did you mean {meant}?" if meant else ""
            click.echo(f"warning: unknown setting {name}{proposal}", err=True)
    kept = {name: value for name, value in given.items() if name in ours and name not in _JAVA_ONLY}
    if kept.get("ssl.truststore.type") == "JKS":
        raise click.ClickException("ssl.truststore.type=JKS is not read; give PEM or PKCS12")
    return kept


def producer_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the settings of a Producer."""
    from ottla.clients.settings import PRODUCER

    return usable(given, ProducerConfig, PRODUCER)


def consumer_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the settings of a Consumer."""
    from ottla.clients.settings import CONSUMER

    return usable(given, ConsumerConfig, CONSUMER)


def open_admin(
    bootstrap_server: str,
    config_file: str | None,
    *,
    bootstrap_controller: str | None = None,
    default_api_timeout_ms: int | None = None,
    warn: bool = True,
) -> Admin:
    """Make an Admin from a tool's flags; with bootstrap_controller it asks the controllers.

    default_api_timeout_ms bounds each call, whatever the file says.
    Unless warn, settings that no client has are passed over in silence.
    """
    from ottla.clients.blocking import Admin
    from ottla.clients.settings import ADMIN

    given = {**read_file(config_file), "bootstrap.servers": bootstrap_server}
    if bootstrap_controller is not None:
        given |= {"bootstrap.servers": "", "bootstrap.controllers": bootstrap_controller}
    if default_api_timeout_ms is not None:
        given["default.api.timeout.ms"] = str(default_api_timeout_ms)
    return Admin(usable(given, AdminConfig, ADMIN, warn=warn))
