"""Flags that many tools share: servers, settings files, version, JSON.

Kafka: org.apache.kafka.server.util.{CommandDefaultOptions, CommandLineUtils}.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")
KAFKA_VERSION = "4.3.0"
_ADDRESS = re.compile(r".*\[?[0-9a-zA-Z\-%._:]*\]?:[0-9]+")
_REQUESTED = "ottla.json"


def bootstrap_option(function: F) -> F:
    """Add --bootstrap-server."""
    return click.option(
        "--bootstrap-server", metavar="HOST:PORT,…", help="REQUIRED. The server(s) to connect to."
    )(function)


def version_option(function: F) -> F:
    """Add --version, which prints the Kafka version that the tool corresponds to."""
    return click.version_option(KAFKA_VERSION, message="%(version)s")(function)


def server_options(function: F) -> F:
    """Add --bootstrap-server, --command-config and --version."""
    return place_options(version_option(function))


def place_options(function: F) -> F:
    """Add --bootstrap-server and --command-config, for tools without --version."""
    config = click.option("--command-config", metavar="FILE", help="Settings of the admin client.")
    return bootstrap_option(config(function))


def controller_option(function: F) -> F:
    """Add --bootstrap-controller."""
    return click.option(
        "--bootstrap-controller", metavar="HOST:PORT,…", help="The controllers to connect to."
    )(function)


def command_config_file(options: dict[str, Any], old: str) -> str | None:
    """Return the file of --command-config or of its deprecated flag, with a warning for that."""
    given: str | None = options[old.replace(".", "_")]
    if given is not None:
        warn_deprecated(old)
    return options["command_config"] or given


def warn_deprecated(flag: str, successor: str = "command-config") -> None:
    """Print Kafka's warning for a deprecated flag."""
    click.echo(
        f"Option --{flag} has been deprecated and will be removed in a future version. "
        f"Use --{successor} instead."
    )


def require(value: object, name: str) -> None:
    """Raise UsageError with Kafka's text for a missing required flag."""
    if value in (None, "", ()):
        raise click.UsageError(f'Missing required argument "[{name}]"')


def require_host_and_port(servers: str) -> None:
    """Raise UsageError with Kafka's text unless all servers have the form host:port."""
    if not all(_ADDRESS.fullmatch(server) for server in servers.split(",")):
        raise click.UsageError("Please provide valid host:port like host1:9091,host2:9092\n")


def json_option(function: F) -> F:
    """Add --json; the command calls `wants_json`."""
    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Print one JSON document instead of Kafka's text.",
    )(function)


def _remember(context: click.Context, _option: click.Parameter, value: bool) -> None:
    context.meta[_REQUESTED] = value


def wants_json() -> bool:
    """Whether the running command prints JSON."""
    return bool(click.get_current_context().meta.get(_REQUESTED, False))


def refuse_json_unless(action: str, *allowed: str) -> None:
    """Raise UsageError when --json is given with an action that lists nothing."""
    if wants_json() and action not in allowed:
        names = " and ".join(f"--{name}" for name in allowed)
        raise click.UsageError(f"--json is only supported with {names}")


def print_json(value: object) -> None:
    """Print the document."""
    click.echo(json.dumps(value, indent=2, default=str))
