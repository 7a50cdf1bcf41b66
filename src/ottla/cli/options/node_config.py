"""Loads a node's configuration for commands: file, environment and overrides.

Kafka: kafka.Kafka.getPropsFromArgs and the container image's kafka.docker.KafkaDockerWrapper.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.config.broker import BrokerConfig
    from ottla.server.node.settings import StartSettings


def load_settings(
    file: str | None, overrides: Sequence[str] = (), *, port: int | None = None
) -> StartSettings:
    """Return the settings of the node that `ottla server-start` would start with these flags.

    Without a file, this is the development node. Raises click.ClickException with all problems,
    one per line with its origin.
    """
    from ottla.config.problems import ConfigErrors
    from ottla.server.node.settings import (
        ConfigFile,
        node_environment,
        node_settings,
        parse_overrides,
    )

    if file is not None and port is not None:
        raise click.UsageError("--port requires a node without a file; set listeners in the file")
    try:
        text = None if file is None else ConfigFile(file, read_properties_text(file))
        environment = node_environment(os.environ, read_text)
        return node_settings(text, parse_overrides(overrides), port=port, environment=environment)
    except OSError as error:
        raise click.ClickException(f"Error loading {file}: {error.strerror}") from error
    except (ConfigErrors, ValueError) as error:
        raise click.ClickException(str(error)) from error


def load_broker_config(file: str) -> BrokerConfig:
    """Read a configuration for a tool that reads directories and does not start a node.

    Unknown and unsupported settings are accepted. Raises ConfigErrors, PropertiesError, OSError.
    """
    from ottla.config.broker import parse_broker_config
    from ottla.config.problems import ConfigErrors
    from ottla.config.providers import resolve
    from ottla.server.node.settings import ConfigFile, gather, node_environment, texts

    environment = node_environment(os.environ, read_text)
    if environment.problems:
        raise ConfigErrors(environment.problems)
    given, _ = gather(ConfigFile(file, read_properties_text(file)), {}, environment=environment)
    resolved = resolve(texts(given), environment.variables)
    if resolved.problems:
        raise ConfigErrors(resolved.problems)
    return parse_broker_config(resolved.values)


def read_text(path: str) -> str:
    """Return the text of a file; raises OSError, UnicodeDecodeError."""
    return Path(path).read_text(encoding="utf-8")


def read_properties_text(path: str) -> str:
    """Return the text of a properties file, UTF-8 or else Latin-1; raises OSError.

    Kafka reads the files as Latin-1, so that comments in Latin-1 must be accepted.
    """
    data = Path(path).read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")
