"""Client settings of tools, from files and flags, and the admin client made from them.

Kafka: org.apache.kafka.server.util.CommandDefaultOptions, the tools' --command-config.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.config.client import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from ottla.config.problems import nearest
from ottla.config.properties import PropertiesError, parse_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.clients.blocking import Admin


# Settings of Kafka's Java clients that name Java classes, which have no meaning here.
_JAVA_ONLY = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")


_JAAS = "sasl.jaas.config"
_REQUEST_TIMEOUT_MS = "30000"
CONNECT_TIMEOUT_S = 10.0
"""A tool ends if it reaches no broker within this time; Kafka's tools retry for a minute."""


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """Parse name=value flags."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise click.UsageError(f"Invalid command line properties: {pair}")
        settings[name.strip()] = value.strip()
    return settings


class SettingsFileError(click.ClickException):
    """A settings file that cannot be read."""


def read_file(path: str | None) -> dict[str, str]:
    """Read the settings of a properties file; no settings without a path."""
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
    """Return the settings that Ottla's client has; warn about names that no client has.

    Settings that only the Java client has are ignored, so that files for Kafka's tools work.
    """
    ours = set(known)
    for name in given:
        if warn and name not in table.keys and name not in ours:
            meant = nearest(name, [*table.keys, *ours])
            proposal = f"; did you mean {meant}?" if meant else ""
            click.echo(f"warning: unknown setting {name}{proposal}", err=True)
    kept = {name: value for name, value in given.items() if name in ours and name not in _JAVA_ONLY}
    return {**_login_of_java(kept), **kept}


def _login_of_java(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the login of the file that KAFKA_OPTS names, for settings without one of their own."""
    is_sasl = str(settings.get("security.protocol", "")).upper().startswith("SASL")
    if not is_sasl or {_JAAS, "sasl.username"} & settings.keys():
        return {}
    from ottla.security.jaas import (
        CLIENT,
        OPTIONS_VARIABLE,
        entries_by_mechanism,
        login_file_path,
    )

    path = login_file_path(os.environ.get(OPTIONS_VARIABLE, ""))
    if path is None:
        return {}
    try:
        entries = entries_by_mechanism(Path(path).read_text(encoding="utf-8"), CLIENT)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        text = f"cannot read the login file {path}, which {OPTIONS_VARIABLE} names: {reason}"
        raise click.ClickException(text) from error
    entry = entries.get(str(settings.get("sasl.mechanism", "")).upper())
    return {} if entry is None else {_JAAS: entry}


def producer_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a Producer has."""
    from ottla.clients.settings import PRODUCER

    return usable(given, ProducerConfig, PRODUCER)


def consumer_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a Consumer has."""
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
    """Create an Admin from a tool's flags; with bootstrap_controller it connects to controllers.

    default_api_timeout_ms overrides the file. With warn=False unknown settings are ignored
    silently.
    """
    from ottla.clients.blocking import Admin
    from ottla.clients.settings import ADMIN

    given = {**read_file(config_file), "bootstrap.servers": bootstrap_server}
    if bootstrap_controller is not None:
        given |= {"bootstrap.servers": "", "bootstrap.controllers": bootstrap_controller}
    if default_api_timeout_ms is not None:
        given["default.api.timeout.ms"] = str(default_api_timeout_ms)
        # Kafka's tools limit each call; a client whose limit is below that of a request is invalid
        request_ms = given.get("request.timeout.ms", _REQUEST_TIMEOUT_MS)
        if request_ms.isdecimal() and int(request_ms) > default_api_timeout_ms >= 0:
            given["request.timeout.ms"] = str(default_api_timeout_ms)
    admin = Admin(config=usable(given, AdminConfig, ADMIN, warn=warn))
    try:
        admin.wait_connected(timeout=CONNECT_TIMEOUT_S)
    except BaseException:
        admin.close()
        raise
    return admin


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """Parse name=value arguments; raises ClickException."""
    found = {}
    for text in texts:
        parts = text.split("=")
        if len(parts) != 2:
            raise click.ClickException(f"Invalid property: {text}")
        found[parts[0]] = parts[1]
    return found


def key_values_raw(pairs: tuple[str, ...]) -> dict[str, str]:
    """Parse name=value flags and keep blanks: a separator may be one."""
    key_values(pairs)
    return dict(pair.split("=", 1) for pair in pairs)
