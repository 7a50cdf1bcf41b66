"""Command line parsing like joptsimple: single values, numbers, error texts.

Kafka: the tools that use joptsimple; `argparse4j.py` serves the others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

ARGUMENTS = "ottla.arguments"
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")


class JavaInteger(click.ParamType[int]):
    """A Java Integer (32 bits) or Long (64); invalid values are refused with joptsimple's text."""

    name = "integer"

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def convert(self, value: Any, param: click.Parameter | None, _ctx: click.Context | None) -> int:
        """Parse a number; raises UsageError."""
        try:
            return java_integer(str(value), self._bits)
        except ValueError as error:
            flag = "?" if param is None else option_name(param)
            raise click.UsageError(f"Cannot parse argument '{value}' of option {flag}") from error


INTEGER, LONG = JavaInteger(32), JavaInteger(64)


def option_name(option: click.Parameter) -> str:
    """Return an option's long name without dashes, as in joptsimple's messages."""
    return max(option.opts, key=len).lstrip("-")


class ToolCommand(click.Command):
    """A command like joptsimple's: an option with a single value may be given only once.

    The original arguments are kept for commands that depend on their order.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments, refuse repeated single-value options, then parse."""
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


def refuse_both(first: str, second: str) -> NoReturn:
    """Raise UsageError with Kafka's text for two flags that exclude each other."""
    names = (name.replace("_", "-") for name in (first, second))
    raise click.UsageError('Option "[{}]" can\'t be used with option "[{}]"'.format(*names))


def java_integer(text: str, bits: int) -> int:
    """Parse an integer like Java's parseInt, parseLong or parseShort; raises ValueError."""
    limit = 1 << (bits - 1)
    if _WHOLE.fullmatch(text) is None or not -limit <= int(text) < limit:
        raise ValueError(f'For input string: "{text}"')
    return int(text)
