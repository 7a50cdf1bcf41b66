"""Three replicas, acks=all: Ottla's three nodes against Kafka's, in alternating runs.

    python benchmarks/against_kafka/replicated.py --libs KAFKA_LIBS [--runs N] [--only NAME]

CPU is that of all three nodes. Prints a row a case with ratios Ottla / Kafka; below 1 means that
Ottla needs less (throughput: above 1 is better). Kafka is warmed up first.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from brokers import Broker, cpu_seconds_of, free_port, resident_mb_of
from run import Case, build_loader, compare, produce, run_case, topic_of

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
NODES = (1, 2, 3)
HEAP = "-Xms512m -Xmx512m"
TOUCHED = "-XX:+AlwaysPreTouch"  # a node that runs for days has used its whole heap
ALL = ("-acks", "all")
CASES = (
    Case("small, 1 client", produce("-clients", "1", "-requests", "3000", *ALL), 0.5),
    Case("small, 8 clients", produce("-clients", "8", "-requests", "10000", *ALL), 0.5),
    Case("small, 64 clients", produce("-clients", "64", "-requests", "20000", *ALL), 0.5),
    Case(
        "100 x 100 B, none",
        produce("-clients", "8", "-requests", "3000", "-batch", "100", *ALL),
        0.6,
        "record",
    ),
    Case(
        "100 x 100 B, lz4",
        produce("-clients", "8", "-requests", "3000", "-batch", "100", "-codec", "lz4", *ALL),
        0.6,
        "record",
    ),
    Case(
        "100 x 1 KB, none",
        produce("-clients", "4", "-requests", "2000", "-batch", "100", "-size", "1000", *ALL),
        0.6,
        "record",
    ),
    Case(
        "100 x 1 KB, lz4",
        produce(
            *("-clients", "4", "-requests", "2000", "-batch", "100", "-size", "1000"),
            *("-codec", "lz4", *ALL),
        ),
        0.6,
        "record",
    ),
)


class Trio(Broker):
    """Three nodes of one kind on loopback, each broker and controller."""

    def __init__(
        self, name: str, directory: Path, java: list[str], settings: tuple[str, ...] = ()
    ) -> None:
        """Format and start them; java is the command of Kafka's JVM, empty for Ottla."""
        self.name = name
        self._java = java
        self.ports = ports = {node: (free_port(), free_port()) for node in NODES}
        voters = ",".join(f"{node}@127.0.0.1:{ports[node][1]}" for node in NODES)
        self._files: dict[int, Path] = {}
        for node in NODES:
            home = directory / str(node)
            home.mkdir(parents=True)
            file = home / "server.properties"
            lines = (_properties(node, home, ports[node], voters), *settings)
            file.write_text("\n".join(lines))
            self._run("format", file)
            self._files[node] = file
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.start(*NODES)
        self.bootstrap = f"127.0.0.1:{ports[1][0]}"

    def start(self, *nodes: int) -> None:
        """Start nodes and wait until they accept connections."""
        for node in nodes:
            self._processes[node] = self._start(self._files[node])
        for node in nodes:
            self.process = self._processes[node]
            self._wait_for_port(self.ports[node][0], time.monotonic())

    def end(self, signal_number: int, *nodes: int) -> None:
        """Send a signal to nodes and wait for their end."""
        for node in nodes:
            self._processes[node].send_signal(signal_number)
        for node in nodes:
            self._processes.pop(node).wait(300)

    def data(self, node: int) -> Path:
        """Return the log directory of a node."""
        return self._files[node].parent / "data"

    def _run(self, what: str, file: Path) -> None:
        options = [what, "-t", CLUSTER_ID, "-c", str(file)]
        tool = [*self._java, "kafka.tools.StorageTool"] if self._java else [*_OTTLA, "storage"]
        features = [
            word
            for name in ("transaction", "group", "share", "streams")
            for word in ("--feature", f"{name}.version=0")
        ]
        subprocess.run([*tool, *options, *features], check=True, stdout=subprocess.DEVNULL)

    def _start(self, file: Path) -> subprocess.Popen[bytes]:
        server = [*self._java, "-server", "-XX:+UseG1GC", "kafka.Kafka"]
        command = server if self._java else [*_OTTLA, "server-start"]
        with (file.parent / "log").open("ab") as log:
            return subprocess.Popen(
                [*_ends_with_parent(), *command, str(file)], stdout=log, stderr=log
            )

    def cpu_seconds(self) -> float:
        """Return user and system time of all nodes since their start."""
        return sum(map(self.cpu_seconds_of, self._processes))

    def cpu_seconds_of(self, node: int) -> float:
        """Return user and system time of a node since its start."""
        return cpu_seconds_of(self._processes[node].pid)

    def resident_mb_of(self, node: int) -> float:
        """Return the resident memory of a node."""
        return resident_mb_of(self._processes[node].pid)

    def stop(self) -> None:
        """Kill the nodes: their data are thrown away."""
        self.end(signal.SIGKILL, *tuple(self._processes))


def _ends_with_parent() -> list[str]:
    """Return the words before a command that the kernel kills when the benchmark ends."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


_OTTLA = [sys.executable, "-m", "ottla"]


def _properties(node: int, home: Path, ports: tuple[int, int], voters: str) -> str:
    return "\n".join(
        (
            "process.roles=broker,controller",
            f"node.id={node}",
            f"listeners=PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}",
            "controller.listener.names=CONTROLLER",
            f"controller.quorum.voters={voters}",
            f"log.dirs={home / 'data'}",
            "min.insync.replicas=2",
            "auto.leader.rebalance.enable=false",
        )
    )


def java_command(libs: str, directory: Path, heap: str = HEAP) -> list[str]:
    """Return the command of Kafka's JVM, which logs errors only."""
    logging = directory / "log4j2.yaml"
    logging.write_text(
        "Configuration:\n  Appenders:\n    Console: {name: out}\n"
        "  Loggers:\n    Root: {level: error, AppenderRef: {ref: out}}\n"
    )
    return ["java", *heap.split(), "-cp", f"{libs}/*", f"-Dlog4j2.configurationFile={logging}"]


def create_topics(trio: Trio) -> None:
    """Create every case's topic, led by the first node, once all brokers are there."""
    from ottla import Admin, NewTopic

    with Admin(bootstrap_servers=trio.bootstrap) as admin:
        until = time.monotonic() + 60
        while len(admin.describe_cluster().brokers) < len(NODES) and time.monotonic() < until:
            time.sleep(0.1)
        made = admin.create_topics(
            [NewTopic(topic_of(case), assignments={0: list(NODES)}) for case in CASES]
        )
        for error in made.values():
            if isinstance(error, Exception):
                raise error
    time.sleep(2)


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libs", required=True, help="directory of Kafka 4.3.0's jars")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--warm-seconds", type=float, default=30)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    loader = build_loader()
    directory = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
    java = java_command(options.libs, directory, f"{HEAP} {TOUCHED}")
    trios = [Trio("ottla", directory / "ottla", []), Trio("kafka", directory / "kafka", java)]
    try:
        for trio in trios:
            create_topics(trio)
        until = time.monotonic() + options.warm_seconds
        while time.monotonic() < until:
            run_case(loader, trios[1], CASES[1])
        for case in CASES:
            if options.only in case.name:
                row = compare(loader, list(trios), case, options.runs)
                shown = {name: round(value, 2) for name, value in row.items() if "ratio" in name}  # type: ignore[call-overload]
                print(f"{case.name:22} {shown} budget {case.budget}", row["ottla"], flush=True)
    finally:
        for trio in trios:
            trio.stop()


if __name__ == "__main__":
    main()
