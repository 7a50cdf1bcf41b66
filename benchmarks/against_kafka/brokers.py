"""Starts Kafka and Ottla on the same disk and reads their CPU time and memory from /proc."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HEAP = "-Xms1g -Xmx1g"
"""Kafka's default, stated with each figure."""


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def cpu_seconds_of(pid: int) -> float:
    """Return user and system time of a process since its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb_of(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Broker:
    """A broker process: its address, its CPU seconds and its memory."""

    name = ""
    pid = 0
    bootstrap = ""
    start_seconds = 0.0
    start_timeout_seconds = 300
    process: subprocess.Popen[bytes]

    def cpu_seconds(self) -> float:
        """Return user and system time since the start."""
        return cpu_seconds_of(self.pid)

    def resident_mb(self) -> float:
        """Return the resident memory in MB."""
        return resident_mb_of(self.pid)

    def _wait_for_port(self, port: int, began: float) -> None:
        while time.monotonic() - began < self.start_timeout_seconds:
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
            except OSError:
                if self.process.poll() is not None:
                    raise RuntimeError(f"{self.name} did not start") from None
                time.sleep(0.005)
            else:
                self.start_seconds = time.monotonic() - began
                return
        raise RuntimeError(f"{self.name} did not open its port in time")

    def stop(self) -> None:
        """Stop the broker."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _port(overrides: tuple[str, ...]) -> int:
    """Return the port of PLAINTEXT in the settings, else a free one."""
    found = re.search(r"PLAINTEXT://127\.0\.0\.1:(\d+)", "\n".join(overrides))
    return free_port() if found is None else int(found[1])


def _properties(directory: Path, port: int) -> str:
    return "\n".join(
        (
            "process.roles=broker,controller",
            "node.id=1",
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{free_port()}",
            "controller.listener.names=CONTROLLER",
            "controller.quorum.bootstrap.servers=127.0.0.1:1",
            f"log.dirs={directory / 'data'}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            "log.retention.check.interval.ms=300000",
        )
    )


class RealKafka(Broker):
    """Kafka 4.3.0 from its jars."""

    name = "kafka"

    def __init__(self, libs: str, directory: Path, *overrides: str) -> None:
        directory.mkdir(parents=True)
        port = _port(overrides)
        properties = directory / "server.properties"
        properties.write_text("\n".join((_properties(directory, port), *overrides)))
        logging = directory / "log4j2.yaml"
        logging.write_text(
            "Configuration:\n  Appenders:\n    Console: {name: out}\n"
            "  Loggers:\n    Root: {level: error, AppenderRef: {ref: out}}\n"
        )
        java = ["java", *HEAP.split(), "-cp", f"{libs}/*", f"-Dlog4j2.configurationFile={logging}"]
        form = ["format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(properties), "--standalone"]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", *form], check=True, stdout=subprocess.DEVNULL
        )
        began = time.monotonic()
        self.process = subprocess.Popen(
            [*java, "-server", "-XX:+UseG1GC", "kafka.Kafka", str(properties)],
            stdout=subprocess.DEVNULL,
        )
        self.pid = self.process.pid
        self.bootstrap = f"127.0.0.1:{port}"
        self._wait_for_port(port, began)


class Ottla(Broker):
    """The node of this source tree; overrides are settings as for `--override`."""

    name = "ottla"

    def __init__(self, directory: Path, *overrides: str) -> None:
        directory.mkdir(parents=True)
        port = _port(overrides)
        command = [sys.executable, "-m", "ottla", "server-start", "--ready-file"]
        ready = directory / "ready.json"
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
        settings = (f"log.dirs={directory / 'data'}", listeners, *overrides)
        began = time.monotonic()
        self.process = subprocess.Popen(
            [*command, str(ready), *(word for one in settings for word in ("--override", one))],
            stdout=subprocess.DEVNULL,
        )
        self.pid = self.process.pid
        self._wait_for_port(port, began)
        while not ready.exists():
            time.sleep(0.005)
        self.bootstrap = json.loads(ready.read_text())["bootstrap"]


class Floor(Broker):
    """A minimal broker in Python: see floor.py."""

    name = "floor"

    def __init__(self) -> None:
        port = free_port()
        began = time.monotonic()
        program = str(Path(__file__).parent / "floor.py")
        self.process = subprocess.Popen([sys.executable, program, str(port)])
        self.pid = self.process.pid
        self.bootstrap = f"127.0.0.1:{port}"
        self._wait_for_port(port, began)
