"""Output of the quickstart: steps, a progress bar, a table, bars.

Kafka: none. Rich writes no escape sequences unless the output is a terminal.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ottla.quickstart.summary import by_carrier, by_week, day_text, worst_week

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from ottla.quickstart.summary import Weeks

BAR_WIDTH = 30
EIGHTHS = " ▏▎▍▌▋▊▉█"
HEIGHTS = "▁▂▃▄▅▆▇█"


class Screen:
    """Output of one run: results on standard output, progress on standard error."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.out = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self.err = Console(file=sys.stderr, highlight=False)
        encoding = (sys.stdout.encoding or "ascii").lower()
        self.has_blocks = encoding.replace("-", "").startswith("utf")

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self._began

    def step(self, text: str) -> None:
        """Print a completed step with the time since the start."""
        self.out.print(f"[dim]{self.elapsed_seconds:5.1f} s[/dim]  {text}")

    def line(self, text: str = "") -> None:
        """Print a line."""
        self.out.print(text)

    @contextmanager
    def progress(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar on a terminal; yields the function that sets the count."""
        if not self.err.is_terminal:
            yield lambda _count: None
            return
        columns = (
            TextColumn("         {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.err, transient=True) as shown:
            task = shown.add_task(text, total=total)
            yield lambda count: shown.update(task, completed=count)

    def carriers(self, weeks: Weeks, airlines: Mapping[str, str]) -> None:
        """Print a table of carriers with bars of their mean delay."""
        totals = by_carrier(weeks)
        longest = max((max(total.mean_delay, 0.0) for total in totals.values()), default=1.0) or 1.0
        table = Table(title="Departures from New York, 2013", title_justify="left", box=None)
        table.add_column("airline", no_wrap=True)
        for name in ("flights", "cancelled", "mean delay"):
            table.add_column(name, justify="right")
        table.add_column("minutes", min_width=BAR_WIDTH)
        for carrier, counts in totals.items():
            table.add_row(
                airlines.get(carrier, carrier),
                f"{counts.flights:,}",
                f"{counts.cancelled:,}",
                f"{counts.mean_delay:.1f}",
                self.bar(counts.mean_delay / longest),
            )
        self.out.print(table)

    def weeks(self, weeks: Weeks, partial: Collection[int]) -> None:
        """Print one line of columns: the mean delay of each week; name the worst complete one."""
        totals = by_week(weeks)
        means = [total.mean_delay for total in totals.values()]
        if len(means) < 2:
            return
        first, last = (day_text(week) for week in (min(totals), max(totals)))
        self.line()
        self.line(f"Mean delay by week, {first} to {last}:")
        self.line(f"  {self.columns(means)}")
        worst = worst_week(totals, partial)
        if worst is not None:
            mean = totals[worst].mean_delay
            self.line(f"  worst: week of {day_text(worst)}, {mean:.1f} minutes")

    def bar(self, share: float) -> str:
        """Return a bar of a share (0 to 1) of the width."""
        eighths = round(min(max(share, 0.0), 1.0) * BAR_WIDTH * 8)
        if not self.has_blocks:
            return "#" * (eighths // 8)
        return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()

    def columns(self, values: list[float]) -> str:
        """Return one character per value, whose height shows the value."""
        low, high = min(values), max(values)
        levels = [int((value - low) / ((high - low) or 1.0) * 7.999) for value in values]
        marks = HEIGHTS if self.has_blocks else "._-~=+*#"
        return "".join(marks[level] for level in levels)
