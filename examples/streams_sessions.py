"""Sessions of visitors: pages seen with pauses of at most 30 minutes, written when a session ends.

ottla streams run examples/streams_sessions.py --bootstrap-server localhost:9092 --checkpoint DIR
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ottla.streams import (
    EmitStrategy,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
)


def add_page(_visitor: str, click: dict[str, Any], pages: list[str]) -> list[str]:
    """Add a click's page to a session."""
    return [*pages, click["page"]]


def summary(visitor: Any, pages: list[str]) -> tuple[str, dict[str, Any]]:
    """Return a session as a record: the key is the visitor."""
    start, end = visitor.window
    return visitor.key, {"seconds": (end - start) // 1000, "pages": pages}


# as in Kafka, a session is lost if the clock of the stream jumps by more than the retention
stored = Materialized("pages", retention_ms=7 * 24 * 3600 * 1000)
builder = StreamsBuilder(StreamsConfig(application_id="sessions"))
windows = SessionWindows.of_inactivity_gap_with_no_grace(timedelta(minutes=30))
(
    builder.stream("clicks")
    .group_by_key()
    .windowed_by(windows)
    .emit_strategy(EmitStrategy.on_window_close())
    .aggregate(list, add_page, lambda _, first, second: first + second, materialized=stored)
    .to_stream()
    .map(summary)
    .to("sessions")
)
