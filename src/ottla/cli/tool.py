"""What the tools share: flags, Kafka's way to say that something failed, Java's numbers.

Kafka: org.apache.kafka.server.util.{CommandDefaultOptions, CommandLineUtils}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from ottla.cli.connection import bootstrap_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

F = TypeVar("F", bound="Callable[..., Any]")

KAFKA_VERSION = "4.3.0"
ARGUMENTS = "ottla.arguments"


class ToolError(Exception):
    """What stops a tool; the text is the one line that is printed."""


class ToolCommand(click.Command):
    """A command that keeps its arguments as they were given, for what depends on their order."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments, then parse them."""
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)


def given_arguments() -> list[str]:
    """Return the arguments of the running command, in order."""
    arguments: list[str] = click.get_current_context().meta[ARGUMENTS]
    return arguments


def version_option(function: F) -> F:
    """Add --version: the version of Kafka whose tool this is."""
    return click.version_option(KAFKA_VERSION, message="%(version)s")(function)


def server_options(function: F) -> F:
    """Add --bootstrap-server, --command-config and --version."""
    config = click.option("--command-config", metavar="FILE", help="Settings of the admin client.")
    return bootstrap_option(config(version_option(function)))


def controller_option(function: F) -> F:
    """Add --bootstrap-controller."""
    return click.option(
        "--bootstrap-controller", metavar="HOST:PORT,…", help="The controllers to connect to."
    )(function)


def fail(*lines: str) -> NoReturn:
    """Print what is wrong on standard error and end with status 1."""
    for line in lines:
        click.echo(line, err=True)
    sys.exit(1)


def refuse_together(chosen: str, others: Sequence[str]) -> None:
    """Refuse a flag beside others, in Kafka's words."""
    for other in others:
        raise click.UsageError(f'Option "[{chosen}]" can\'t be used with option "[{other}]"')


def read_json(path: str) -> Any:
    """Read a JSON file that a flag names; ToolError in Kafka's words."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"Unable to read file {path}") from error
    try:
        return json.loads(text)
    except ValueError as error:
        raise ToolError("The input string is not a valid JSON") from error


def json_field(value: Any, name: str) -> Any:
    """Return a field of a JSON object; ToolError in Kafka's words when it is not there."""
    if not isinstance(value, dict) or name not in value:
        raise ToolError(f"No such field exists: `{name}`")
    return value[name]


def java_double(value: float) -> str:
    """Write a number as Java's Double.toString does: 1024.0, 1.048576E7, 1.0E-4."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    digits = repr(abs(float(value))).partition("e")[0].replace(".", "").strip("0")
    exponent = int(f"{value:.17e}".partition("e")[2])
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
