"""An Ottla node in its own process, which can be killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla import Admin
from ottla.records.batches import iterate_batches
from tests.ports import free_ports
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.records.batch import RecordBatch

START_TIMEOUT_S = 180.0


class NodeProcess:
    """`ottla server-start` on a free port, which stays the same over restarts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the node; return when it answers."""
        ready = self.directory / "ready.json"
        ready.unlink(missing_ok=True)
        settings = {
            "log.dirs": self.data_dir,
            "group.initial.rebalance.delay.ms": 0,
            "group.consumer.min.heartbeat.interval.ms": 100,
            "group.consumer.heartbeat.interval.ms": 300,
            "offsets.topic.num.partitions": 5,
        }
        overrides = [f"--override={name}={value}" for name, value in settings.items()]
        command = [sys.executable, "-m", "ottla.cli.main", "server-start", *overrides]
        with (self.directory / "server.log").open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port), "--ready-file", str(ready)],
                stdout=output,
                stderr=output,
            )
        try:
            found = read_when_ready(ready, self._process)
        except AssertionError as error:
            self.end(signal.SIGKILL)
            raise AssertionError(f"{error}: {self.log()}") from error
        assert found["pid"] == self._process.pid

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process with SIGTERM (clean) or SIGKILL (crash)."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(WAIT_S)

    def log(self) -> str:
        """Return the end of what the node printed."""
        return (self.directory / "server.log").read_text()[-4000:]

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic that keeps records of any age."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topic(name, partitions=partitions, configs={"retention.ms": "-1"})
        return name

    def batches_of(self, topic: str, partition: int) -> list[RecordBatch]:
        """Return the batches that the node wrote to a partition's file."""
        file = self.data_dir / f"{topic}-{partition}" / f"{0:020d}.log"
        return list(iterate_batches(memoryview(file.read_bytes())))


def read_when_ready(ready: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the content of the ready file of `ottla server-start` when it is there."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready.exists():
        assert process.poll() is None, "the node ended"
        assert time.monotonic() < deadline, "the node did not start"
        time.sleep(0.02)
    found: dict[str, Any] = json.loads(ready.read_text())
    return found


@contextmanager
def running_node(directory: Path) -> Iterator[NodeProcess]:
    """Run a node with its data in `directory` for as long as the block lasts."""
    node = NodeProcess(directory)
    try:
        node.start()
        yield node
    finally:
        node.end(signal.SIGKILL)
