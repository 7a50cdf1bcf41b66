"""Alerts: an airport without departures for hours, or with departures that are late on average.

Punctuations by stream time look at what a store keeps of each airport.

ottla streams run examples/streams_alerts.py --bootstrap-server localhost:9092 --checkpoint DIR
"""

from __future__ import annotations

from typing import Any

from ottla.streams import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
)

HOUR_MS = 3_600_000
QUIET_HOURS = 9
LATE_MINUTES = 60
MIN_FLIGHTS = 10


class Watch(Processor):
    """Keeps the last departure and the delays of each airport, and looks at them every hour."""

    def init(self, context: ProcessorContext) -> None:
        """Take the store, and ask for an hourly call."""
        super().init(context)
        self.airports = context.get_state_store("airports")
        context.schedule(HOUR_MS, PunctuationType.STREAM_TIME, self.look)

    def process(self, record: Record) -> None:
        """Add a flight to its airport."""
        known = self.airports.get(record.key) or {"flights": 0, "delay": 0}
        delay = record.value["dep_delay"] or 0
        self.airports.put(
            record.key,
            {
                "flights": known["flights"] + 1,
                "delay": known["delay"] + delay,
                "last_ms": record.timestamp,
            },
        )

    def look(self, now_ms: int) -> None:
        """Write an alert for each airport that is quiet or late, and start the next hour."""
        for airport, known in list(self.airports.all()):
            quiet_hours = (now_ms - known["last_ms"]) // HOUR_MS
            is_quiet = quiet_hours >= QUIET_HOURS
            if is_quiet and not known.get("is_quiet"):
                self.alert(airport, now_ms, {"alert": "quiet", "hours": quiet_hours})
            mean = known["delay"] / max(known["flights"], MIN_FLIGHTS)
            if mean >= LATE_MINUTES:
                self.alert(airport, now_ms, {"alert": "late", "minutes": round(mean)})
            self.airports.put(airport, {**known, "flights": 0, "delay": 0, "is_quiet": is_quiet})

    def alert(self, airport: str, now_ms: int, value: dict[str, Any]) -> None:
        """Forward an alert."""
        self.context.forward(Record(airport, value, now_ms))


builder = StreamsBuilder(StreamsConfig(application_id="airport-alerts"))
builder.add_state_store(Stores.key_value("airports", Serdes.string(), Serdes.json()))
builder.stream("departures").process(Watch, "airports").to("alerts")
