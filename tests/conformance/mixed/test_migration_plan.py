"""The commands that `ottla migrate plan` prints are run on a real Kafka node, both ways.

This is the walk of docs/moving-clusters.md.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Consumer, NewTopic, Producer
from tests.conformance.kafka import RealKafka
from tests.waits import read_to_end

if TYPE_CHECKING:
    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(400)]
STEP_LIMIT_S = 120.0
START = """#!/bin/sh
shift
{java} "$1" >> kafka.log 2>&1 &
echo $! > kafka.pid
"""
STOP = """#!/bin/sh
kill "$(cat kafka.pid)"
"""


class Site:
    """A directory with Kafka's scripts in bin, as far as the plan calls them."""

    def __init__(self, kafka: Kafka, directory: Path) -> None:
        self.node = RealKafka(kafka, directory, {})
        self.node.format()
        (directory / "bin").mkdir()
        java = shlex.join(kafka.command("kafka.Kafka", heap_mb=512))
        for name, text in (("start", START.format(java=java)), ("stop", STOP)):
            script = directory / "bin" / f"kafka-server-{name}.sh"
            script.write_text(text, encoding="utf-8")
            script.chmod(0o755)

    def run(self, command: str, *, check: bool = True) -> str:
        """Run a command of the plan in the directory; return its output."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.node.directory,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=STEP_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done.stdout

    def plan(self) -> dict[str, Any]:
        """Make the plan of the running node."""
        flags = f"--bootstrap-server {self.node.bootstrap} --properties {self.node.properties_file}"
        document: dict[str, Any] = json.loads(self.run(f"ottla migrate plan {flags} --json"))
        return document

    def take(self, step: dict[str, Any]) -> None:
        """Run the three commands of a step."""
        for name in ("stop", "start", "in_sync"):
            self.run(step[name])

    def read(self) -> int:
        """Return the number of records that the group has not read."""
        with Consumer(
            "orders",
            bootstrap_servers=self.node.bootstrap,
            group_id="billing",
            auto_offset_reset="earliest",
        ) as consumer:
            return len(read_to_end(consumer))

    def send(self) -> None:
        """Send a hundred records."""
        with Producer(bootstrap_servers=self.node.bootstrap) as producer:
            for number in range(100):
                producer.send("orders", str(number).encode())


def test_the_steps_of_a_plan(kafka: Kafka, tmp_path: Path) -> None:
    """Kafka, Ottla, Kafka: each plan is ready; records, groups and features stay."""
    site = Site(kafka, tmp_path)
    file = site.node.properties_file
    try:
        site.run(f"bin/kafka-server-start.sh -daemon {file}")
        bootstrap = site.node.bootstrap
        site.run(f"until ottla cluster health --bootstrap-server {bootstrap}; do sleep 1; done")
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic("orders", 2, 1)])
        site.send()
        assert site.read() == 100
        site.send()
        first = site.plan()
        assert first["ready"]
        assert [one["release"] for one in first["cluster"]["brokers"]] == ["4.3"]
        site.take(first["steps"][0])
        assert (tmp_path / "ottla-1.log").exists()
        assert site.read() == 100
        site.send()
        second = site.plan()
        assert second["ready"]
        assert second["cluster"]["features"] == first["cluster"]["features"]
        assert second["cluster"]["topics"] == first["cluster"]["topics"]
        site.take(second["way_back"][0])
        site.run("kill -0 $(cat kafka.pid)")
        assert site.read() == 100
        assert site.plan()["cluster"]["features"] == first["cluster"]["features"]
        assert not list(site.node.log_dir.glob("*-stray"))
    finally:
        site.run(f"kill -9 $(cat kafka.pid); ottla server-stop {file}", check=False)
