"""What a running application shows: rates, lag, state and batch time of its last micro-batch.

Kafka: metrics of stream-thread-metrics and stream-state-metrics; Spark: StreamingQueryProgress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

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
    )


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


def table_of(name: str, progress: Progress | None) -> Table:
    """Return the figures as a table for the terminal."""
    from rich.table import Table

    table = Table(title=name)
    for column in ("batch", "rows", "rows/s", "lag", "rows of state", "batch time"):
        table.add_column(column, justify="right")
    if progress is not None:
        table.add_row(
            str(progress.batch),
            f"{progress.rows:,}",
            f"{progress.rows_per_second:,.0f}",
            f"{progress.lag:,}",
            f"{progress.state_rows:,}",
            f"{progress.batch_ms:,} ms",
        )
    return table
