"""Mean delay of each airline's departures by day: flights joined with airlines, in windows.

ottla streams run examples/streams_flights.py --bootstrap-server localhost:9092 --checkpoint DIR
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ottla.streams import StreamsBuilder, StreamsConfig, Suppressed, TimeWindows

Flight = dict[str, Any]
Totals = dict[str, float]


def add_delay(_airline: str, flight: Flight, totals: Totals) -> Totals:
    """Add a flight's delay to a day's totals."""
    return {"flights": totals["flights"] + 1, "delay": totals["delay"] + flight["dep_delay"]}


def day(airline: Any, totals: Totals) -> tuple[str, dict[str, Any]]:
    """Return a day as a record: the key is the airline."""
    mean = round(totals["delay"] / totals["flights"], 1)
    return airline.key, {
        "day_ms": airline.window.start,
        "flights": int(totals["flights"]),
        "mean_delay": mean,
    }


builder = StreamsBuilder(StreamsConfig(application_id="flight-delays"))
airlines = builder.global_table("airlines")
(
    builder.stream("flights")
    .filter(lambda _, flight: flight["dep_delay"] is not None)  # cancelled ones have none
    .join(
        airlines,
        lambda flight, airline: {**flight, "airline": airline["name"]},
        key_selector=lambda _, flight: flight["carrier"],
    )
    .group_by(lambda _, flight: flight["airline"])
    .windowed_by(TimeWindows.of_size_and_grace(timedelta(days=1), timedelta(hours=1)))
    .aggregate(lambda: {"flights": 0, "delay": 0.0}, add_delay)
    .suppress(Suppressed.until_window_closes())
    .to_stream()
    .map(day)
    .to("delays")
)
