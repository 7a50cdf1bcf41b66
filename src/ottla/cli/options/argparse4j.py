"""Command line parsing like argparse4j: abbreviated names, numbers, subcommands, error texts.

Kafka: the tools that use net.sourceforge.argparse4j; `joptsimple.py` serves the others.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from ottla.cli.options.joptsimple import java_integer
from ottla.cli.options.proposals import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")
GIVEN = "ottla.given"


@contextmanager
def _option_errors(command: click.Command, ctx: click.Context) -> Iterator[None]:
    """Word errors of unknown flags, and of flags without their values, as argparse4j does."""
    try:
        yield
    except click.NoSuchOption as error:
        options = command.get_params(ctx)
        flags = [flag for option in options for flag in option.opts if flag.startswith("--")]
        proposal = did_you_mean(error.option_name, flags)
        raise click.UsageError(
            f"unrecognized arguments: '{error.option_name}'{proposal}", ctx
        ) from error
    except click.BadOptionUsage as error:
        raise click.UsageError(
            f"argument {error.option_name}: expected one argument", ctx
        ) from error


class PrefixCommand(click.Command):
    """A command of an argparse4j tool: long options may be abbreviated."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Expand abbreviated options, then parse; refuse arguments that no option takes."""
        ctx.allow_extra_args = True
        words = whole_options(self, ctx, args)
        with _option_errors(self, ctx):
            _, _, ctx.meta[GIVEN] = self.make_parser(ctx).parse_args(list(words))
        unknown = super().parse_args(ctx, words)
        if unknown:
            raise click.UsageError(f"unrecognized arguments: '{' '.join(unknown)}'", ctx)
        return unknown


def whole_options(command: click.Command, ctx: click.Context, args: list[str]) -> list[str]:
    """Expand abbreviated long options; raises UsageError for an ambiguous one.

    The arguments after a group's subcommand belong to the subcommand and are unchanged.
    """
    options = [param for param in command.get_params(ctx) if isinstance(param, click.Option)]
    takes_value = {
        flag: not (option.is_flag or option.count) for option in options for flag in option.opts
    }
    words = list(args)
    position = 0
    while position < len(words) and words[position] != "--":
        word, equals, value = words[position].partition("=")
        if word.startswith("--"):
            word = _whole_name(word, [flag for flag in takes_value if flag.startswith("--")], ctx)
            words[position] = word + equals + value
        elif isinstance(command, click.Group) and not word.startswith("-"):
            break
        position += 2 if takes_value.get(word) and not equals else 1
    return words


def _whole_name(given: str, names: Sequence[str], ctx: click.Context) -> str:
    """Return the only name with this prefix; without one, the text itself."""
    found = [given] if given in names else sorted(name for name in names if name.startswith(given))
    if len(found) > 1:
        kind = "option" if given.startswith("--") else "command"
        raise click.UsageError(f"ambiguous {kind}: {given} could match {', '.join(found)}", ctx)
    return found[0] if found else given


class ArgparseCommand(PrefixCommand):
    """A command like argparse4j's: without arguments it prints its help and exits with 0.

    A flag that is declared with `multiple=True` takes all arguments up to the next flag.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat a flag before each of its values, then parse."""
        if not args:
            click.echo(ctx.get_help())
            ctx.exit(0)
        many = {
            flag
            for parameter in self.params
            if isinstance(parameter, click.Option) and parameter.multiple
            for flag in parameter.opts
        }
        spread: list[str] = []
        current: str | None = None
        for word in whole_options(self, ctx, args):
            if word.startswith("--"):
                current = word if word in many else None
            elif current is not None and spread[-1] != current:
                spread.append(current)
            spread.append(word)
        return super().parse_args(ctx, spread)


class ToolGroup(click.Group):
    """A tool with subcommands: a missing or unknown one is an error that proposes the nearest name.

    Subcommands and long options may be abbreviated, as in argparse4j.
    """

    command_class = PrefixCommand

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **{**keywords, "no_args_is_help": False})

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a subcommand; its help ends with the tool's examples that call it."""
        super().add_command(cmd, name)
        cmd.epilog = cmd.epilog or _examples_of(self.epilog or "", name or cmd.name or "")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Expand the group's abbreviated options, then parse."""
        with _option_errors(self, ctx):
            return super().parse_args(ctx, whole_options(self, ctx, args))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; raises UsageError without one."""
        if not ctx._protected_args and not ctx.args:  # noqa: SLF001 - click stores them there
            raise click.UsageError("too few arguments", ctx)
        return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand."""
        known = list(self.commands)
        name = _whole_name(args[0], known, ctx)
        if self.get_command(ctx, name) is None:
            choices = ", ".join(f"'{name}'" for name in known)
            proposal = did_you_mean(name, known)
            raise click.UsageError(
                f"invalid choice: '{name}' (choose from {choices}){proposal}", ctx
            )
        return super().resolve_command(ctx, [name, *args[1:]])


def _examples_of(examples: str, subcommand: str) -> str:
    """Return the examples that call a subcommand, after any flags of the tool."""
    calls = re.compile(rf"ottla \S+ (--\S+ \S+ (\\\n +)?)*{subcommand}\b(?!-)")
    _, *all_of_them = re.split(r"\n  (?=ottla )", examples.rstrip())
    return "\n  ".join(["\b\nExamples:", *filter(calls.match, all_of_them)])


class JavaNumber(click.ParamType[Any]):
    """A number; invalid values are refused with the text of Java's parsers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(
        self, value: Any, param: click.Parameter | None, _ctx: click.Context | None
    ) -> int | float:
        """Parse a Long, an Integer or a Double; raises UsageError."""
        try:
            if self.name == "Double":
                return float(value)
            return java_integer(str(value), 32 if self.name == "Integer" else 64)
        except ValueError as error:
            flag = "?" if param is None else "/".join(param.opts)
            raise click.UsageError(
                f"argument {flag}: could not convert '{value}' to {self.name} "
                f'(For input string: "{value}")'
            ) from error


LONG, INTEGER, DOUBLE = JavaNumber("Long"), JavaNumber("Integer"), JavaNumber("Double")


def need(value: T | None, flag: str) -> T:
    """Return the value of a flag; raises UsageError if it is missing, as argparse4j does."""
    if value is None:
        raise click.UsageError(f"argument {flag} is required")
    return value


def exclude_together(*names: str) -> None:
    """Raise UsageError if more than one of these parameters of the running command is given."""
    given = [option for option in click.get_current_context().meta[GIVEN] if option.name in names]
    if len(given) > 1:
        first, second = ("/".join(option.opts) for option in given[:2])
        raise click.UsageError(f"argument {second}: not allowed with argument {first}")


def refuse(message: str) -> NoReturn:
    """Raise UsageError for invalid flags."""
    raise click.UsageError(message)
