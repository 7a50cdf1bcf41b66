"""A broker that stops, or dies, for longer than clients wait: the run goes on by itself."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.spark.kills.clusters import START_LIMIT_S, nodes_of
from tests.spark.streams_process import START_S, SlowApplication, StreamsProcess
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.clusters.nodes import Node

pytestmark = [pytest.mark.conformance, pytest.mark.spark, pytest.mark.timeout(2700)]
TIMEOUTS_MS = {
    "kafka.default.api.timeout.ms": 5000,
    "kafka.max.block.ms": 5000,
    "kafka.request.timeout.ms": 4000,
    "kafka.delivery.timeout.ms": 5000,
}
"""In place of a minute or two, so that the broker needs to be away for a shorter time."""
AWAY_S = 25.0


@contextmanager
def stopped(node: Node) -> Iterator[None]:
    """Let the process stand still: connections stay open, and nothing answers."""
    node.send(signal.SIGSTOP)
    yield
    node.send(signal.SIGCONT)


@contextmanager
def killed(node: Node) -> Iterator[None]:
    """Kill the process, and start it again on its directory."""
    node.kill()
    yield
    node.start()
    wait_for(lambda: node.is_ready, START_LIMIT_S)


def test_the_broker_is_away(tmp_path: Path) -> None:
    """In a micro-batch and between two; each number arrives once, in the same process."""
    options = [word for item in TIMEOUTS_MS.items() for word in ("--config", "{}={}".format(*item))]
    with nodes_of(tmp_path / "nodes", 1) as cluster:
        (node,) = cluster.nodes
        app = SlowApplication(node.address, tmp_path, "away")
        app.send(4)
        with StreamsProcess(app, *options) as run:
            app.wait_until_exact()
            for absence in (stopped, killed):
                with absence(node):  # the query waits for records
                    time.sleep(AWAY_S)
                app.send(2)
                app.wait_until_exact()
                app.forget()
                app.send(10, pause_s=1)
                wait_for(lambda: app.has("batch"), START_S)
                with absence(node):
                    time.sleep(AWAY_S)
                app.wait_until_exact()
                app.send(2)
                app.wait_until_exact()
            assert run.process.poll() is None
