"""What a running application shows: rates, lag, state and batch time of its last micro-batch.

Kafka: metrics of stream-thread-metrics and stream-state-metrics; Spark: StreamingQueryProgress.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table


class Progress(NamedTuple):
    """The figures of a micro-batch."""

    batch: int
    rows: int
    rows_per_second: float
    lag: int
    state_rows: int
    batch_ms: int
    state_bytes: int = 0
    stream_time_ms: int = -1
    """The highest timestamp of the records that were read; -1 before the first."""
    run: str = ""
    """Spark's id of this run of the query."""


OBSERVED: Final = "ottla"
"""The name of what a query observes: the highest timestamp of each micro-batch."""


def read_progress(report: Mapping[str, Any]) -> Progress:
    """Return the figures of one of Spark's progress reports."""
    sources = report.get("sources") or []
    states = report.get("stateOperators") or []
    return Progress(
        int(report.get("batchId", -1)),
        int(report.get("numInputRows") or 0),
        float(report.get("processedRowsPerSecond") or 0.0),
        sum(_lag(source) for source in sources),
        sum(int(state.get("numRowsTotal") or 0) for state in states),
        int((report.get("durationMs") or {}).get("triggerExecution", 0)),
        sum(int(state.get("memoryUsedBytes") or 0) for state in states),
        _stream_time(report),
        str(report.get("runId", "")),
    )


def _stream_time(report: Mapping[str, Any]) -> int:
    observed = (report.get("observedMetrics") or {}).get(OBSERVED) or {}
    found = observed.get("stream_time_ms")
    return -1 if found is None else int(found)


def _lag(source: Mapping[str, Any]) -> int:
    """Return how many offsets the micro-batch's end is short of the topics' end."""
    ends, latest = source.get("endOffset"), source.get("latestOffset")
    if not isinstance(ends, dict) or not isinstance(latest, dict):
        return 0
    return sum(
        max(0, int(last) - int(ends.get(topic, {}).get(partition, 0)))
        for topic, offsets in latest.items()
        for partition, last in offsets.items()
        if partition.isdecimal()
    )


COLUMNS: Final = (
    "batch",
    "rows",
    "rows/s",
    "lag",
    "stream time",
    "rows of state",
    "state",
    "batch time",
)


def _time_text(time_ms: int) -> str:
    if time_ms < 0:
        return "-"
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def table_of(name: str, progress: Progress | None) -> Table:
    """Return the figures as a table for the terminal."""
    from rich.table import Table

    table = Table(title=name)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    if progress is not None:
        table.add_row(
            str(progress.batch),
            f"{progress.rows:,}",
            f"{progress.rows_per_second:,.0f}",
            f"{progress.lag:,}",
            _time_text(progress.stream_time_ms),
            f"{progress.state_rows:,}",
            f"{progress.state_bytes / 1_000_000:,.1f} MB",
            f"{progress.batch_ms:,} ms",
        )
    return table
