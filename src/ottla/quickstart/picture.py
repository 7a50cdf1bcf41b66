"""The picture: flights and delays of the year as a PNG.

Kafka: none.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from ottla.quickstart.summary import by_carrier, by_week

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ottla.quickstart.summary import Weeks

LINES = 5
"""Number of carriers with a separate line."""


def draw(weeks: Weeks, airlines: Mapping[str, str], path: Path) -> None:
    """Write the PNG; raises OSError."""
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    totals = by_week(weeks)
    days = [_day(week) for week in totals]
    upper.bar(days, [one.flights for one in totals.values()], width=5, color="#9bb8d3")
    upper.bar(days, [one.cancelled for one in totals.values()], width=5, color="#c0392b")
    upper.set_ylabel("flights a week (red: cancelled)")
    upper.set_title("Departures from New York, 2013: weekly windows by Spark, read from a topic")
    for carrier in list(by_carrier(weeks))[:LINES]:
        own = {key.week_ms: counts for key, counts in weeks.items() if key.carrier == carrier}
        inside = [week for week in sorted(own) if own[week].flights >= 20]
        lower.plot(
            [_day(week) for week in inside],
            [own[week].mean_delay for week in inside],
            label=airlines.get(carrier, carrier),
        )
    lower.set_ylabel("mean departure delay, minutes")
    lower.legend(fontsize="small", ncols=LINES, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    lower.grid(alpha=0.3)
    figure.savefig(path, format="png", dpi=120)


def _day(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
