"""Ctrl-C and SIGTERM end `ottla streams run` at any time, and its checkpoint goes on."""

from __future__ import annotations

import signal
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.spark.streams_process import START_S, SlowApplication, StreamsProcess
from tests.waits import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.cluster import Cluster

pytestmark = [pytest.mark.conformance, pytest.mark.spark, pytest.mark.timeout(2700)]
END_S = 180.0
"""Of an idle machine it is a few seconds; others may keep this one busy."""


HELD_S = 600.0
"""How long a micro-batch lasts that is to end by a signal."""


class Stop(NamedTuple):
    """When signals come, and what the run ends with."""

    when: str
    signals: tuple[signal.Signals, ...]
    status: int
    line: str = "stopped"
    options: tuple[str, ...] = ()


INT, TERM = signal.SIGINT, signal.SIGTERM
STOPS = (
    Stop("loaded", (INT,), 0),
    Stop("loaded", (TERM,), 0),
    Stop("java", (INT,), 0),
    Stop("java", (TERM,), 0),
    Stop("batch", (INT,), 0),
    Stop("batch", (TERM,), 0),
    Stop("batch", (INT, INT), 130, "stopped at once"),
    Stop("batch", (TERM, TERM), 143, "stopped at once"),
    Stop("batch", (INT,), 130, options=("--once",)),
    Stop("batch", (TERM,), 143, options=("--once",)),
)


def has_come(app: SlowApplication, run: StreamsProcess, when: str) -> bool:
    """Whether a run has come so far."""
    return run.has_java() if when == "java" else app.has(when)


def test_signals_end_a_run(node: Cluster, tmp_path: Path) -> None:
    """With one line, the documented status and no process left; no record is lost or twice."""
    app = SlowApplication(node.bootstrap, tmp_path, "signals")
    for stop in STOPS:
        app.forget()
        app.send(4, pause_s=0.2 if stop.when != "batch" else HELD_S)
        with StreamsProcess(app, *stop.options) as run:
            wait_for(partial(has_come, app, run, stop.when), START_S)
            if len(stop.signals) > 1:  # the second one comes while the first one's stop lasts
                run.suspend_java()
            for number in stop.signals:
                run.process.send_signal(number)
                time.sleep(0.3)
            if not stop.status:  # the others end in the middle of their micro-batch
                app.hurry()
            begun = time.monotonic()
            assert run.ended(END_S) == stop.status, stop
            print(stop, round(time.monotonic() - begun, 1), run.lines())
            assert run.lines() == [stop.line], stop
    app.hurry()
    with StreamsProcess(app) as run:
        app.wait_until_exact()
        wait_for(lambda: app.results() == list(range(app.sent)))
        run.process.send_signal(TERM)
        assert run.ended(END_S) == 0
        assert run.lines() == ["stopped"]
