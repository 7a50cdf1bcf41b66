"""A node's directories on which real Kafka and Ottla run in turn, from one server.properties."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.conformance.kafka import RealKafka, answers

if TYPE_CHECKING:
    import signal
    from pathlib import Path

DUMP = "org.apache.kafka.tools.DumpLogSegments"


class AlternatingNode(RealKafka):
    """A node that runs as "kafka" or as "ottla"."""

    _ottla: subprocess.Popen[bytes] | None = None

    def run_as(self, kind: str) -> None:
        """Start the node and wait until it responds."""
        if kind == "kafka":
            self.start()
            return
        self.write_properties()
        command = [sys.executable, "-m", "ottla", "server-start", str(self.properties_file)]
        log = self.directory / "ottla.log"
        with log.open("ab") as output:
            self._ottla = subprocess.Popen(command, stdout=output, stderr=output)
        deadline = time.monotonic() + 60
        while not answers(self.port):
            assert self._ottla.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def _end(self, how: signal.Signals) -> None:
        if self._ottla is None:
            super()._end(how)
            return
        self._ottla.send_signal(how)
        self._ottla.wait(60)
        self._ottla = None

    def dump(self) -> str:
        """Return what Kafka's dump tool prints of every file of the stopped node's logs."""
        kinds = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
        files = sorted(
            path
            for kind in kinds
            for path in self.log_dir.glob(f"*-[0-9]*/*{kind}")
            if path.stat().st_size
        )
        return self.kafka.run(DUMP, "--files", ",".join(map(str, files))).stdout


def foreign_marks(log_dir: Path) -> list[str]:
    """Return the directories that a start took for strays."""
    return [path.name for path in log_dir.iterdir() if path.name.endswith("-stray")]
