"""What a running application shows: its figures, the live view, /metrics."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

import pytest
from rich.console import Console

from ottla.streams.metrics import MetricsServer, StreamsMetrics
from ottla.streams.progress import COLUMNS, read_progress, table_of

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
    console.print(table_of("app", read_progress(REPORT)))
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
