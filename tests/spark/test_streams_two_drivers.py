"""Two runs of `ottla streams run` for one application: one goes on, the other one ends."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.spark.streams_process import START_S, SlowApplication, StreamsProcess
from tests.waits import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.cluster import Cluster

pytestmark = [pytest.mark.conformance, pytest.mark.spark, pytest.mark.timeout(2700)]
HELD_S = 600.0
"""Longer than the second run may take to begin its own micro-batch, and at least that."""
ENDED = re.compile("Error: .*another driver runs this query.*: it goes on, this one ends")
REFUSED = "Error: the group's offsets were committed by a query with another checkpoint"


def test_the_first_run_is_fenced_in_its_batch(node: Cluster, tmp_path: Path) -> None:
    """The second one repeats the micro-batch, and goes on alone."""
    app = SlowApplication(node.bootstrap, tmp_path, "taken-over")
    app.send(4)
    with StreamsProcess(app) as first:
        app.wait_until_exact()
        app.forget()
        app.send(40, pause_s=HELD_S)
        wait_for(lambda: app.has("batch"), START_S)
        with StreamsProcess(app) as second:
            wait_for(lambda: app.has(f"batch-{second.token}"), START_S)
            app.hurry()
            wait_for(lambda: first.process.poll() is not None, START_S)
            assert first.ended(START_S) == 1
            assert ENDED.fullmatch(first.lines()[-1])
            app.send(2)
            app.wait_until_exact()
            app.send(2)
            app.wait_until_exact()
            assert second.process.poll() is None


def test_one_of_two_idle_runs_ends(node: Cluster, tmp_path: Path) -> None:
    """Both wait for records: only one of them takes the next micro-batch."""
    app = SlowApplication(node.bootstrap, tmp_path, "both-idle")
    app.send(4)
    with StreamsProcess(app) as first:
        app.wait_until_exact()
        app.forget()
        with StreamsProcess(app) as second:
            wait_for(second.has_java, START_S)
            time.sleep(15)
            runs = [first, second]
            while all(one.process.poll() is None for one in runs):  # the second may begin later
                app.send(2)
                app.wait_until_exact()
            (ended,) = [one for one in runs if one.process.poll() is not None]
            assert ended.ended(START_S) == 1
            assert ENDED.fullmatch(ended.lines()[-1])
            app.send(2)
            app.wait_until_exact()
            (survivor,) = [one for one in runs if one is not ended]
            assert survivor.process.poll() is None


def test_another_checkpoint_of_the_same_application(node: Cluster, tmp_path: Path) -> None:
    """It is refused: the offsets of the application's id belong to the run with the first one."""
    app = SlowApplication(node.bootstrap, tmp_path, "same-id")
    app.send(4)
    with StreamsProcess(app) as first:
        app.wait_until_exact()
        app.send(30, pause_s=1)
        with StreamsProcess(app, checkpoint=str(tmp_path / "other")) as second:
            assert second.ended(START_S) == 1
            assert second.lines()[-1].startswith(
                "Error: the group's offsets were committed by a query with ano"
            )
        app.send(2)
        app.wait_until_exact()
        assert first.process.poll() is None
