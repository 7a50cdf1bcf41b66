"""Checkpoints in HDFS and in S3: exactly once over kills in the middle of micro-batches."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.spark.hdfs import running_hdfs
from tests.spark.s3_server import BUCKET, running_s3, s3a_options
from tests.spark.streams_process import START_S, SlowApplication, StreamsProcess
from tests.waits import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.cluster import Cluster

pytestmark = [pytest.mark.conformance, pytest.mark.spark, pytest.mark.timeout(2700)]
KILLS = 2
FIRST_TASK_S = 5.0
"""After that the task of the even numbers has written its state, which a next run replaces."""


def check(app: SlowApplication, *options: str) -> None:
    """Kill runs in their micro-batches; each number is written once, and counted once."""
    app.send(4)
    with StreamsProcess(app, *options) as run:
        app.wait_until_exact()
        assert run.process.poll() is None
    for _ in range(KILLS):
        app.forget()
        app.send(6, pause_s=5)
        with StreamsProcess(app, *options) as run:
            wait_for(lambda: app.has("batch"), START_S)
            time.sleep(FIRST_TASK_S)
    with StreamsProcess(app, *options, "--once") as run:
        assert run.ended(START_S) == 0
    assert app.results() == list(range(app.sent))
    assert counted(app, *options) == app.sent


def counted(app: SlowApplication, *options: str) -> int:
    """Return what the tasks' states have counted, as `ottla streams query` reads them."""
    command = [sys.executable, "-m", "ottla", "streams", "query", str(app.program), *options]
    command += ["--checkpoint", app.checkpoint, "--store", "counts"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return sum(int(line.rpartition("\t")[2]) for line in done.stdout.splitlines())


def test_hdfs(node: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The NameNode is that of HADOOP_CONF_DIR, as on YARN."""
    app = SlowApplication(node.bootstrap, tmp_path, "hdfs")
    with running_hdfs(tmp_path) as hdfs:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs.settings))
        app.checkpoint = "hdfs:///checkpoints/application"
        check(app)


def test_s3(node: Cluster, tmp_path: Path) -> None:
    """Address and keys are settings of the session."""
    app = SlowApplication(node.bootstrap, tmp_path, "s3")
    with running_s3(tmp_path) as address:
        app.checkpoint = f"s3a://{BUCKET}/application"
        check(app, *s3a_options(address))
