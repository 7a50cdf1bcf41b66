"""The worker of connectors on Spark is killed at any time; source, topic and sink agree."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from subprocess import STDOUT, Popen
from typing import TYPE_CHECKING

import pytest

from ottla import Admin
from tests.spark.connector_worker import TOPIC
from tests.spark.test_connectors import values
from tests.waits import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.cluster import Cluster

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]
COUNT = 20_000
LIMIT_S = 300


def test_a_killed_worker_loses_and_doubles_nothing(node: Cluster, tmp_path: Path) -> None:
    """Twice in the middle, with kill -9; the JVM lives on until it misses its parent."""
    pytest.importorskip("pyspark")
    log = tmp_path / "log"

    def stored() -> list[int]:
        path = tmp_path / "rows.db"
        if not path.exists():
            return []
        with sqlite3.connect(path, timeout=60) as database:
            tables = database.execute("SELECT name FROM sqlite_master").fetchall()
            return [it for (it,) in database.execute("SELECT n FROM rows")] if tables else []

    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=2)
    for limit in (2000, 9000, COUNT):
        with log.open("ab") as output:
            command = [sys.executable, "-m", "tests.spark.connector_worker", node.bootstrap]
            worker = Popen(
                [*command, str(tmp_path), str(COUNT)],
                stdout=output,
                stderr=STDOUT,
                start_new_session=True,
            )
        try:

            def has_reached(limit: int = limit) -> bool:
                assert worker.poll() is None, log.read_text()[-4000:]  # noqa: B023 - at once
                return len(stored()) >= limit

            wait_for(has_reached, LIMIT_S)
            worker.kill()
        finally:
            if limit == COUNT or worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
    assert sorted(it["n"] for it in values(node.bootstrap, TOPIC)) == list(range(COUNT))
    assert sorted(stored()) == list(range(COUNT))
