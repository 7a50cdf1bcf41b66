"""A program that counts, run with `ottla streams run` on clusters, and what it has written."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from ottla import Admin, Producer
from ottla.spark.jvm.local_session import REMOTE
from tests.spark.streams_topics import latest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
from ottla.streams import Consumed, Serdes, StreamsBuilder, StreamsConfig, expr

builder = StreamsBuilder(StreamsConfig(application_id="{name}"))
numbers = builder.stream("{name}-in", consumed=Consumed(value=Serdes.json(schema="n BIGINT")))
odd = numbers.filter(expr("value.n % 2 = 1")).select_key(expr("CAST(value.n % 3 AS STRING)"))
odd.group_by_key().count().to_stream().to("{name}-out")
"""
LIMIT_S = 1000
CONNECT_LIMIT = "spark.python.authenticate.socketTimeout"
"""Executors of a cluster start their Pythons within this time: 15 s are few on a busy machine."""


class CountingRun:
    """The program, its topics and its checkpoint."""

    def __init__(self, bootstrap: str, directory: Path, name: str) -> None:
        self.bootstrap, self.directory, self.name = bootstrap, directory, name
        self.program = directory / "app.py"
        self.program.write_text(PROGRAM.format(name=name))
        self.sent = 0
        with Admin(bootstrap_servers=bootstrap) as admin:
            for topic in (f"{name}-in", f"{name}-out"):
                admin.create_topic(topic, partitions=2)

    def send(self) -> None:
        """Send the numbers 0 to 19."""
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for number in range(20):
                producer.send(f"{self.name}-in", b'{"n":%d}' % number, partition=number % 2)
        self.sent += 1

    def run(self, master: str, *options: str) -> None:
        """Process what is there, as a user does, in the directory of the program."""
        command = [sys.executable, "-m", "ottla", "streams", "run", str(self.program), "--once"]
        command += ["--bootstrap-server", self.bootstrap, "--master", master, *options]
        if not master.startswith(REMOTE):  # the server has set it
            command += ["--conf", f"{CONNECT_LIMIT}={LIMIT_S}s"]
        command += ["--checkpoint", str(self.directory / "checkpoint")]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            cwd=self.directory,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]

    def check(self) -> None:
        """Check the last count of each key: each number sent so far is counted once.

        A run writes one update for a key.
        """
        counts = latest(self.bootstrap, f"{self.name}-out", 3 * self.sent)
        expected = {"0": 3 * self.sent, "1": 4 * self.sent, "2": 3 * self.sent}
        assert {key: int.from_bytes(value) for key, value in counts.items()} == expected
