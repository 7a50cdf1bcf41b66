"""What the tools share: flags, Kafka's way to say that something failed, Java's numbers.

Kafka: org.apache.kafka.server.util.{CommandDefaultOptions, CommandLineUtils}.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from ottla.cli.options.connection import bootstrap_option
from ottla.cli.output.java_names import java_text
from ottla.clients.settings import SettingsError
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

F = TypeVar("F", bound="Callable[..., Any]")

KAFKA_VERSION = "4.3.0"
ARGUMENTS = "ottla.arguments"
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")


class ToolError(Exception):
    """What stops a tool; the text is the one line that is printed."""


class JavaInteger(click.ParamType[int]):
    """A whole number of Java's Integer (32 bits) or Long (64), refused in joptsimple's words."""

    name = "integer"

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def convert(self, value: Any, param: click.Parameter | None, _ctx: click.Context | None) -> int:
        """Read a number; UsageError for what is none or does not fit."""
        try:
            return java_integer(str(value), self._bits)
        except ValueError as error:
            flag = "?" if param is None else option_name(param)
            raise click.UsageError(f"Cannot parse argument '{value}' of option {flag}") from error


INTEGER, LONG = JavaInteger(32), JavaInteger(64)


def java_integer(text: str, bits: int) -> int:
    """Read a number as Java's parseInt (32 bits), parseLong (64) and parseShort do; ValueError."""
    limit = 1 << (bits - 1)
    if _WHOLE.fullmatch(text) is None or not -limit <= int(text) < limit:
        raise ValueError(f'For input string: "{text}"')
    return int(text)


def option_name(option: click.Parameter) -> str:
    """Return an option's long name without dashes, as joptsimple tells it."""
    return max(option.opts, key=len).lstrip("-")


class ToolCommand(click.Command):
    """A command that is called as joptsimple's are: an option with one value is given once.

    Its arguments are kept as they were given, for what depends on their order.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments, refuse a second value (which of them would count?), then parse."""
        ctx.meta[ARGUMENTS] = list(args)
        _, _, found = self.make_parser(ctx).parse_args(list(args))
        for number, one in enumerate(found):
            is_single = isinstance(one, click.Option) and not (one.multiple or one.is_flag)
            if is_single and one in found[:number]:
                raise click.UsageError(
                    f"Found multiple arguments for option {option_name(one)}, but you asked for "
                    "only one",
                    ctx,
                )
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
    return place_options(version_option(function))


def place_options(function: F) -> F:
    """Add --bootstrap-server and --command-config: some of Kafka's tools know no --version."""
    config = click.option("--command-config", metavar="FILE", help="Settings of the admin client.")
    return bootstrap_option(config(function))


def controller_option(function: F) -> F:
    """Add --bootstrap-controller."""
    return click.option(
        "--bootstrap-controller", metavar="HOST:PORT,…", help="The controllers to connect to."
    )(function)


def current_name(options: dict[str, Any], old: str) -> str | None:
    """Return the file of --command-config, or of the flag it had before, and say that it is old."""
    given: str | None = options[old.replace(".", "_")]
    if given is not None:
        say_old(old)
    return options["command_config"] or given


def say_old(flag: str, successor: str = "command-config") -> None:
    """Tell, in Kafka's words, which flag to use instead."""
    click.echo(
        f"Option --{flag} has been deprecated and will be removed in a future version. "
        f"Use --{successor} instead."
    )


@contextmanager
def failures_reported() -> Iterator[None]:
    """End the tool with one line for what a broker refuses or an argument lacks."""
    try:
        yield
    except ToolError as error:
        fail(str(error))
    except SettingsError as error:
        fail(str(error))  # Kafka's tools tell it without the name of its class
    except KafkaError as error:
        fail(java_text(error))


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
    except (ValueError, RecursionError) as error:
        raise ToolError("The input string is not a valid JSON") from error


def json_object(value: Any) -> dict[str, Any]:
    """Return a JSON object; ToolError in Kafka's words for anything else."""
    if not isinstance(value, dict):
        raise ToolError(f"Expected JSON object, received {_json(value)}")
    return value


def json_array(value: Any) -> list[Any]:
    """Return a JSON array; ToolError in Kafka's words for anything else."""
    if not isinstance(value, list):
        raise ToolError(f"Expected JSON array, received {_json(value)}")
    return value


def json_field(value: Any, name: str) -> Any:
    """Return a field of a JSON object; ToolError in Kafka's words when it is not there."""
    if name not in json_object(value):
        raise ToolError(f"No such field exists: `{name}`")
    return value[name]


def json_string(value: Any, name: str) -> str:
    """Return a field that is a text; ToolError in Kafka's words for anything else."""
    found = json_field(value, name)
    if not isinstance(found, str):
        raise ToolError(f"Expected `String` value, received {_json(found)}")
    return found


def json_number(value: Any, name: str, bits: int) -> int:
    """Return a field that is a number of 32 or 64 bits; ToolError in Kafka's words otherwise."""
    found = json_field(value, name)
    limit = 1 << (bits - 1)
    is_whole = isinstance(found, int) and not isinstance(found, bool)
    if not is_whole or not -limit <= found < limit:
        kind = "Integer" if bits == 32 else "Long"
        raise ToolError(f"Expected `{kind}` value, received {_json(found)}")
    number: int = found
    return number


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
