"""What a running application shows: rates, lag, state and batch time of its last micro-batch.

Kafka: metrics of stream-thread-metrics and stream-state-metrics; Spark: StreamingQueryProgress.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    "all rows",
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


class ProgressLog:
    """Counts the rows of all micro-batches, and writes a line for each that has some."""

    def __init__(
        self, write: Callable[[str], None] | None = None, *, as_json: bool = False
    ) -> None:
        self._write, self._as_json = write, as_json
        self._taken: tuple[str, int] = ("", -1)
        self.rows = self.batches = 0
        self.last: Progress | None = None
        """The last micro-batch that had rows, or else the last one."""

    def take(self, progress: Progress) -> None:
        """Take the figures of a micro-batch, which may be the last ones again."""
        if (progress.run, progress.batch) == self._taken:
            return
        if progress.rows or self.last is None or not self.last.rows:
            self.last = progress
        if not progress.rows:
            return
        self._taken = progress.run, progress.batch
        self.rows += progress.rows
        self.batches += 1
        if self._write is not None:
            figures = {**progress._asdict(), "all_rows": self.rows}
            self._write(json.dumps(figures) if self._as_json else _line_of(progress))

    @property
    def summary(self) -> str:
        """The rows and the micro-batches so far."""
        noun = "micro-batch" if self.batches == 1 else "micro-batches"
        return f"{self.rows:,} rows in {self.batches:,} {noun}"


def _line_of(progress: Progress) -> str:
    return (
        f"batch {progress.batch}: {progress.rows:,} rows, {progress.rows_per_second:,.0f} rows/s, "
        f"lag {progress.lag:,}, {progress.state_rows:,} rows of state, {progress.batch_ms:,} ms"
    )


def table_of(name: str, log: ProgressLog) -> Table:
    """Return the figures as a table for the terminal."""
    from rich.table import Table

    table = Table(title=name)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    progress = log.last
    if progress is not None:
        table.add_row(
            str(progress.batch),
            f"{log.rows:,}",
            f"{progress.rows:,}",
            f"{progress.rows_per_second:,.0f}",
            f"{progress.lag:,}",
            _time_text(progress.stream_time_ms),
            f"{progress.state_rows:,}",
            f"{progress.state_bytes / 1_000_000:,.1f} MB",
            f"{progress.batch_ms:,} ms",
        )
    return table
