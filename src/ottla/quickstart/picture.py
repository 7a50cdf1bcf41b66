"""The picture: flights and delays of the year as a PNG.

Each colour has one meaning in both halves: blue departed, red cancelled, grey a partial week,
yellow the worst week, black all airlines, and one colour for each airline.

Kafka: none.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ottla.quickstart.flights import WEEK_MS
from ottla.quickstart.summary import WeekCounts, by_carrier, by_week, day_text, worst_week

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from ottla.quickstart.summary import Weeks

DEPARTED, CANCELLED, PARTIAL, WORST, ALL = "#9bb8d3", "#c0392b", "#d0d0d0", "#ffe08a", "#000000"
CARRIERS = ("#1b9e77", "#7570b3", "#e7298a", "#a6761d", "#17a2b8")
"""The colours of the largest carriers; the number of separate lines."""


class Findings(NamedTuple):
    """The content of the picture in words."""

    title: str
    subtitle: str
    worst: int | None
    """The start of the worst complete week in ms since the epoch; None without one."""


def findings(weeks: Weeks, partial: Collection[int]) -> Findings:
    """Return the title, with the worst week, and the totals."""
    totals = by_week(weeks)
    worst = worst_week(totals, partial)
    year = sum(totals.values(), WeekCounts())
    subtitle = (
        f"{year.flights:,} flights, {year.cancelled:,} cancelled, "
        f"{year.mean_delay:.0f} minutes late on average: weekly windows by Spark, read from a topic"
    )
    if worst is None:
        return Findings("Departures from New York by week", subtitle, None)
    title = (
        f"In the worst week, from {day_text(worst)}, flights left New York "
        f"{totals[worst].mean_delay:.0f} minutes late on average"
    )
    return Findings(title, subtitle, worst)


def draw(weeks: Weeks, airlines: Mapping[str, str], partial: Collection[int], path: Path) -> None:
    """Write the PNG; `partial` has the starts of incomplete weeks. Raises OSError."""
    found = findings(weeks, partial)
    figure = Figure(figsize=(10, 7), layout="constrained")
    figure.suptitle(found.title, fontsize="x-large", fontweight="bold", x=0.01, ha="left")
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.set_title(found.subtitle, fontsize="medium", loc="left")
    _draw_flights(upper, weeks, partial)
    _draw_delays(lower, weeks, airlines, partial)
    if found.worst is not None:
        for axes in (upper, lower):
            axes.axvspan(
                _day(found.worst), _day(found.worst + WEEK_MS), color=WORST, zorder=0, lw=0
            )
        lower.annotate(
            f"worst week, {by_week(weeks)[found.worst].mean_delay:.0f} minutes",
            (_day(found.worst + WEEK_MS), 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, -4),
            textcoords="offset points",
            va="top",
            fontsize="small",
        )
    figure.savefig(path, format="png", dpi=120)


def _draw_flights(axes: Any, weeks: Weeks, partial: Collection[int]) -> None:
    """Draw a bar for each week: departed flights, and the cancelled ones on top of them."""
    totals = by_week(weeks)
    for label, color, group in (
        ("departed", DEPARTED, [week for week in totals if week not in partial]),
        ("departed, partial week", PARTIAL, [week for week in totals if week in partial]),
        ("cancelled", CANCELLED, list(totals)),
    ):
        is_top = color == CANCELLED
        departed = [totals[week].flights - totals[week].cancelled for week in group]
        axes.bar(
            [_day(week) for week in group],
            [totals[week].cancelled for week in group] if is_top else departed,
            bottom=departed if is_top else None,
            width=5.5,
            align="edge",
            color=color,
            label=label,
        )
    axes.set_ylabel("flights a week")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylim(top=axes.get_ylim()[1] * 1.15)
    axes.legend(fontsize="small", ncols=3, loc="upper left", frameon=False)


def _draw_delays(
    axes: Any, weeks: Weeks, airlines: Mapping[str, str], partial: Collection[int]
) -> None:
    """Draw the mean delay of complete weeks: a line for each large carrier and one for all."""
    lines = {
        airlines.get(carrier, carrier): (
            color,
            {key.week_ms: counts for key, counts in weeks.items() if key.carrier == carrier},
        )
        for color, carrier in zip(CARRIERS, by_carrier(weeks), strict=False)
    }
    for label, (color, own) in {**lines, "all airlines": (ALL, by_week(weeks))}.items():
        inside = [week for week in sorted(own) if week not in partial and own[week].flights >= 20]
        axes.plot(
            [_day(week + WEEK_MS // 2) for week in inside],
            [own[week].mean_delay for week in inside],
            label=label,
            color=color,
            linewidth=2.5 if color == ALL else 1.2,
        )
    axes.set_ylabel("mean departure delay, minutes")
    axes.axhline(0, color=ALL, linewidth=0.5)
    axes.legend(fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    axes.grid(alpha=0.3)


def _day(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
