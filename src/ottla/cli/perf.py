"""What the measuring tools share: flags as argparse4j reads them, pace, percentiles, metrics.

Kafka: org.apache.kafka.server.util.ThroughputThrottler, org.apache.kafka.tools.ToolsUtils.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ottla.cli.tool import PrefixCommand, java_integer, whole_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.clients.windows import MetricName

BYTES_PER_MB = 1024 * 1024


class ArgparseCommand(PrefixCommand):
    """A command that is called as argparse4j's are: without a word it shows its help, status 0.

    A flag that is declared with `multiple=True` takes all words up to the next flag.
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


class JavaNumber(click.ParamType[Any]):
    """A number, refused in the words of Java's parsers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(
        self, value: Any, param: click.Parameter | None, _ctx: click.Context | None
    ) -> int | float:
        """Read a Long, an Integer or a Double; UsageError otherwise."""
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


def need(value: object, flag: str) -> None:
    """Refuse a call without a flag, as argparse4j does."""
    if value is None:
        raise click.UsageError(f"argument {flag} is required")


def refuse(message: str) -> NoReturn:
    """End a call whose flags cannot be."""
    raise click.UsageError(message)


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """Read name=value words; UsageError names one that is none."""
    found = {}
    for text in texts:
        parts = text.split("=")
        if len(parts) != 2:
            raise click.ClickException(f"Invalid property: {text}")
        found[parts[0]] = parts[1]
    return found


class Pace:
    """Holds back a loop that would be faster than `rate` a second; a rate below 0 never does."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._began = time.monotonic()

    def lead_s(self, done: int) -> float:
        """Return for how many seconds the next one is too early; a rate of 0 lets none pass."""
        if self._rate < 0:
            return 0.0
        if self._rate == 0:
            return float("inf")
        return max(0.0, done / self._rate - (time.monotonic() - self._began))

    def wait(self, done: int) -> None:
        """Sleep until `done` fits the rate."""
        while (lead := self.lead_s(done)) > 0:
            time.sleep(min(lead, 1.0))


def ratio(count: float, by: float) -> float:
    """Divide as Java's doubles do: by nothing gives infinity, nothing by nothing no number."""
    if by:
        return count / by
    return float("inf") if count else float("nan")


def decimals(value: float, places: int) -> str:
    """Write a number with so many places, also what is none."""
    if value != value:  # noqa: PLR0124 - not a number
        return "NaN"
    return "Infinity" if value == float("inf") else f"{value:.{places}f}"


def percentile(ordered: Sequence[int], part: float) -> int:
    """Return the value at a part of the ordered values; 0 when there are none."""
    return ordered[int(part * len(ordered))] if ordered else 0


def print_metrics(values: Mapping[MetricName, float | str]) -> None:
    """Print a client's metrics in Kafka's form."""
    rows = {str(name): value for name, value in values.items()}
    width = max(len(name) for name in rows)
    click.echo(f"\n{'Metric Name':{width}}   Value")
    for name, value in sorted(rows.items()):
        shown = value if isinstance(value, str) else decimals(value, 3)
        click.echo(f"{name:{width}} : {shown}")


_LETTERS = re.compile(r"'((?:[^']|'')*)'|([a-zA-Z])\2*")


def java_date(pattern: str, time_ms: int) -> str:
    """Write a local time by a pattern of java.text.SimpleDateFormat; UsageError for a letter.

    The letters are y M d H h m s S a E, with their repetitions; text stands between quotes.
    """
    when = time.localtime(time_ms // 1000)

    def field(found: re.Match[str]) -> str:
        if found[2] is None:
            return found[1].replace("''", "'") or "'"
        return _date_field(found[2], len(found[0]), when, time_ms % 1000)

    return _LETTERS.sub(field, pattern)


def _date_field(letter: str, size: int, when: time.struct_time, milliseconds: int) -> str:
    if letter == "y":
        return f"{when.tm_year % 100:02d}" if size == 2 else f"{when.tm_year:0{size}d}"
    if letter == "M" and size > 2:
        return time.strftime("%b" if size == 3 else "%B", when)
    if letter in "aE":
        return time.strftime({"a": "%p", "E": "%a" if size < 4 else "%A"}[letter], when)
    numbers = {
        "M": when.tm_mon,
        "d": when.tm_mday,
        "H": when.tm_hour,
        "h": (when.tm_hour + 11) % 12 + 1,
        "m": when.tm_min,
        "s": when.tm_sec,
        "S": milliseconds,
    }
    if letter not in numbers:
        raise click.UsageError(f"Illegal pattern character '{letter}'")
    return f"{numbers[letter]:0{size}d}"
