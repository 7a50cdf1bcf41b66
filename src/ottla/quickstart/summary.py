"""Flights per week and carrier: computed directly, to verify Spark's result.

Kafka: none.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.quickstart.flights import DAY_MS, WEEK_MS, week_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


class WeekKey(NamedTuple):
    """A window of the result: Monday in ms since the epoch, and the carrier."""

    week_ms: int
    carrier: str


class WeekCounts(NamedTuple):
    """The counts of a window."""

    flights: int = 0
    cancelled: int = 0
    delay_minutes: int = 0
    """Sum of the departure delays of departed flights."""

    @property
    def mean_delay(self) -> float:
        """Mean departure delay of departed flights in minutes."""
        left = self.flights - self.cancelled
        return self.delay_minutes / left if left else 0.0

    def __add__(self, other: object) -> WeekCounts:
        assert isinstance(other, WeekCounts)
        return WeekCounts(
            self.flights + other.flights,
            self.cancelled + other.cancelled,
            self.delay_minutes + other.delay_minutes,
        )


Weeks = dict[WeekKey, WeekCounts]


def count_directly(flights: Iterable[tuple[int, str, int | None]]) -> Weeks:
    """Count (time in ms, carrier, departure delay) per week and carrier."""
    counted: dict[WeekKey, list[int]] = {}
    for time_ms, carrier, delay in flights:
        counts = counted.setdefault(WeekKey(week_of(time_ms), carrier), [0, 0, 0])
        counts[0] += 1
        if delay is None:
            counts[1] += 1
        else:
            counts[2] += delay
    return {key: WeekCounts(*counts) for key, counts in counted.items()}


def from_records(values: Iterable[Mapping[str, Any]]) -> Weeks:
    """Read the values of the result topic; a duplicate window counts as wrong."""
    found: Weeks = {}
    for value in values:
        key = WeekKey(int(value["week"]), str(value["carrier"]))
        counts = WeekCounts(
            int(value["flights"]), int(value["cancelled"]), int(value["delay_minutes"])
        )
        found[key] = found[key] + counts if key in found else counts
    return found


def differences(expected: Weeks, found: Weeks) -> list[str]:
    """Return one line for each window that differs."""
    return [
        f"{key.carrier} in week {key.week_ms}: expected {expected.get(key)}, found {found.get(key)}"
        for key in sorted(expected.keys() | found.keys())
        if expected.get(key) != found.get(key)
    ]


def by_carrier(weeks: Weeks) -> dict[str, WeekCounts]:
    """Sum over weeks; carriers with the most flights first."""
    totals: dict[str, WeekCounts] = {}
    for key, counts in weeks.items():
        totals[key.carrier] = totals.get(key.carrier, WeekCounts()) + counts
    return dict(sorted(totals.items(), key=lambda item: -item[1].flights))


def by_week(weeks: Weeks) -> dict[int, WeekCounts]:
    """Sum over carriers, in the order of weeks."""
    totals: dict[int, WeekCounts] = {}
    for key, counts in sorted(weeks.items()):
        totals[key.week_ms] = totals.get(key.week_ms, WeekCounts()) + counts
    return totals


def partial_weeks(first_ms: int, last_ms: int) -> frozenset[int]:
    """Return the weeks of the first and the last event that the data do not cover in whole days."""
    first, last = week_of(first_ms), week_of(last_ms)
    begins_late = first_ms - first_ms % DAY_MS > first
    ends_early = last_ms - last_ms % DAY_MS + DAY_MS < last + WEEK_MS
    return frozenset(
        week for week, is_partial in ((first, begins_late), (last, ends_early)) if is_partial
    )


def worst_week(totals: Mapping[int, WeekCounts], partial: Collection[int]) -> int | None:
    """Return the complete week with the largest mean delay, None without a complete week."""
    complete = [week for week in totals if week not in partial]
    return max(complete, key=lambda week: totals[week].mean_delay, default=None)


def day_text(time_ms: int) -> str:
    """Return a day for people, such as 8 Jul 2013."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%d %b %Y}".lstrip("0")
