"""Numbers, dates and metrics in the format of Kafka's performance tools.

Kafka: org.apache.kafka.tools.ToolsUtils, java.text.SimpleDateFormat.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.clients.metric_windows import MetricName

BYTES_PER_MB = 1024 * 1024


def ratio(count: float, by: float) -> float:
    """Divide as Java's doubles do: x / 0 is infinity, 0 / 0 is NaN."""
    if by:
        return count / by
    return float("inf") if count else float("nan")


def decimals(value: float, places: int) -> str:
    """Write a number with this many decimal places; NaN and infinity as in Java."""
    if value != value:  # noqa: PLR0124 - not a number
        return "NaN"
    return "Infinity" if value == float("inf") else f"{value:.{places}f}"


def percentile(ordered: Sequence[int], part: float) -> int:
    """Return the value at a fraction of the ordered values; 0 without values."""
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
    """Write a local time by a pattern of java.text.SimpleDateFormat.

    Supports the letters y M d H h m s S a E with repetitions, and quoted text. Raises UsageError
    for other letters.
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
