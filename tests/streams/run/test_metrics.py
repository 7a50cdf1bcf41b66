"""What a running application shows: its figures, the live view, /metrics."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from ottla.streams import Streams, StreamsBuilder
from ottla.streams.run.metrics import MetricsServer, StreamsMetrics
from ottla.streams.run.progress import COLUMNS, ProgressLog, read_progress, table_of

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.streams.run.progress import Progress

REPORT: dict[str, Any] = {
    "runId": "r",
    "batchId": 7,
    "numInputRows": 100,
    "processedRowsPerSecond": 50.0,
    "durationMs": {"triggerExecution": 2000},
    "sources": [
        {
            "endOffset": {"t": {"0": 10, "1": 20, "id": "x"}},
            "latestOffset": {"t": {"0": 15, "1": 20, "id": "x"}},
        }
    ],
    "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 2_000_000}],
    "observedMetrics": {"ottla": {"stream_time_ms": 1_000}},
}


def test_the_live_view_has_every_figure() -> None:
    """Rates, lag, stream time, state and batch time in one line."""
    console = Console(width=140, record=True)
    log = ProgressLog()
    log.take(read_progress(REPORT))
    log.take(read_progress(REPORT)._replace(batch=8, rows=0))  # the last one with rows is shown
    console.print(table_of("app", log))
    text = console.export_text()
    assert all(column in text for column in COLUMNS)
    for shown in ("100", "50", " 5 ", "1970-01-01 00:00:01", "2.0 MB", "2,000 ms"):
        assert shown in text


def test_metrics_are_served() -> None:
    """Rows of a micro-batch count once, those of another run again."""
    metrics = StreamsMetrics("app")
    progress = read_progress(REPORT)
    for one in (progress, progress, progress._replace(run="s")):
        metrics.take(one)
    metrics.restarted()
    with MetricsServer(metrics, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.port}/"
        text = urllib.request.urlopen(address + "metrics").read().decode()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address)
        refused.value.close()
    assert 'ottla_streams_rows_total{application_id="app"} 200' in text
    assert 'ottla_streams_lag{application_id="app"} 5' in text
    assert 'ottla_streams_restarts_total{application_id="app"} 1' in text


class Query:
    """A query of Spark that has ended, with its reports."""

    def __init__(self, *numbers: int) -> None:
        texts = [json.dumps({**REPORT, "batchId": number}) for number in numbers]
        self.recentProgress = [SimpleNamespace(json=text) for text in texts]
        self.waited_s: list[float] = []

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - PySpark's name
        """The last of the reports."""
        return self.recentProgress[-1] if self.recentProgress else None

    def awaitTermination(self, timeout_s: float) -> bool:  # noqa: N802 - PySpark's name
        """Have another micro-batch after each call but the second one."""
        self.waited_s.append(timeout_s)
        return len(self.waited_s) == 2


def application(path: Path, query: Query) -> Streams:
    """Return an application with this query."""
    topology = StreamsBuilder().build()
    app = Streams(topology, bootstrap_servers="localhost:1", checkpoint=path)
    app.query = query  # type: ignore[assignment]
    return app


def test_no_micro_batch_is_left_out(tmp_path: Path) -> None:
    """Several may end between two looks at them; the last one is there again at each look."""
    app = application(tmp_path, Query(3, 4, 5))
    found = app.progress_after(None)
    assert [one.batch for one in found] == [3, 4, 5]
    assert [one.batch for one in app.progress_after(found[0])] == [4, 5]
    assert [one.batch for one in app.progress_after(found[1])] == [5]
    assert [one.batch for one in app.progress_after(found[2])] == [5]
    assert [one.batch for one in app.progress_after(found[2]._replace(run="s"))] == [3, 4, 5]
    assert application(tmp_path, Query()).progress_after(None) == []


def test_the_figures_of_a_run_of_what_is_there_are_reported(tmp_path: Path) -> None:
    """Each second, and at the end; without a receiver nothing is asked."""
    seen: list[Progress] = []
    query = Query(0, 1)
    application(tmp_path, query)._finish(600, seen.append)
    assert [one.batch for one in seen] == [0, 1, 1]
    assert [round(one) for one in query.waited_s] == [1, 1]
