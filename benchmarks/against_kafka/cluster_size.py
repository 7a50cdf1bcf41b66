"""Three nodes of Ottla against three of Kafka: many partitions, and nodes that die.

    python benchmarks/against_kafka/cluster_size.py --libs KAFKA_LIBS [--only NAME ...] [--runs N]
        [--partitions N] [--topics N] [--idle-partitions N] [--heap SIZE] [--kind ottla]

Each run starts a cluster of its own in an empty directory, one kind after the other. Prints the
figures of each run, then the ratios Ottla / Kafka of the medians; below 1 means that Ottla needs
less. CPU is that of all three nodes. `--kind ottla` measures Ottla alone. A measurement that fails
is reported and the others go on. The nodes end with this program, also when it is killed.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from replicated import NODES, Trio, java_command
from wire import (
    Peer,
    create,
    create_on,
    elect_preferred,
    fenced_at,
    quorum_leader,
    serving_count,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION = (
    "broker.session.timeout.ms=3000",
    "broker.heartbeat.interval.ms=500",
    "group.initial.rebalance.delay.ms=0",
)
"""The same for both kinds; the other settings are defaults."""
WARM_TOPICS = 100
PAUSE_SECONDS = 0.005
"""Between two attempts of the produce loop."""


class Options(NamedTuple):
    """What the command line says."""

    java: list[str]
    directory: Path
    topics: int
    partitions: int
    idle_partitions: int
    idle_seconds: float


class Size:
    """One cluster of one kind under measurement; `figures` is what was found."""

    def __init__(self, kind: str, options: Options) -> None:
        self.options = options
        self.directory = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=options.directory))
        java = options.java if kind == "kafka" else []
        self.trio = Trio(kind, self.directory, java, settings=SESSION)
        self.ports = {node: self.trio.ports[node][0] for node in NODES}
        self.figures: dict[str, float] = {}
        try:
            wait_until(self._is_complete, "three brokers")
        except BaseException:
            self.close()
            raise

    def _is_complete(self) -> bool:
        peers = [Peer(port) for port in self.ports.values()]
        counts = [len(peer.metadata(()).brokers) for peer in peers]
        for peer in peers:
            peer.close()
        return counts == [len(NODES)] * len(NODES)

    def close(self) -> None:
        """Kill the nodes; their data are removed last, which takes a minute on a busy disk."""
        self.trio.stop()

    def timed(self, name: str, action: Callable[[], object]) -> None:
        """Note the seconds and the CPU seconds of an action."""
        cpu, began = self.trio.cpu_seconds(), time.monotonic()
        action()
        self.figures[f"{name} s"] = time.monotonic() - began
        self.figures[f"{name} CPU s"] = self.trio.cpu_seconds() - cpu

    def resident_mb(self) -> float:
        """Return the memory of a node, on average."""
        return statistics.mean(self.trio.resident_mb_of(node) for node in NODES)

    def warm(self) -> None:
        """Let the JVM compile: create topics in small requests and write to them."""
        if not self.options.java or self.trio.name != "kafka":
            return
        peer = Peer(self.ports[1])
        for number in range(WARM_TOPICS):
            create(peer, {f"warm-{number}": 1})
        names = [f"warm-{number}" for number in range(WARM_TOPICS)]
        self.wait_for(names, WARM_TOPICS)
        peer.close()

    def wait_for(
        self, names: list[str], count: int, *, full_isr: bool = True, of: tuple[int, ...] = NODES
    ) -> None:
        """Wait until each live broker knows that so many partitions of topics are served."""
        for first in of:
            ports = {first: self.ports[first]} | {node: self.ports[node] for node in of}
            wait_until(
                lambda ports=ports: serving_count(ports, names, full_isr=full_isr) == count,  # type: ignore[misc] # a lambda's default binds the loop's value
                f"{count} partitions",
            )


def measure_topics(size: Size) -> None:
    """Topics of one partition, 50 in a request."""
    size.warm()
    names = [f"topic-{number}" for number in range(size.options.topics)]

    def create_all() -> None:
        peer = Peer(size.ports[1])
        for start in range(0, len(names), 50):
            create(peer, dict.fromkeys(names[start : start + 50], 1))
        peer.close()
        size.wait_for(names, len(names))

    size.timed("create", create_all)


def measure_partitions(size: Size) -> None:
    """Create, restart of all nodes, failover of one; memory."""
    size.warm()
    count = size.options.partitions
    per_topic = max(count // 10, 1)
    names = [f"large-{number}" for number in range(count // per_topic)]
    count = per_topic * len(names)
    empty_mb = size.resident_mb()

    def create_all() -> None:
        peer = Peer(size.ports[1])
        for name in names:
            create(peer, {name: per_topic})
        peer.close()
        size.wait_for(names, count)

    size.timed("create", create_all)
    size.figures["memory KB per partition"] = 1024 * (size.resident_mb() - empty_mb) / count
    began = time.monotonic()
    size.trio.end(signal.SIGTERM, *NODES)
    size.figures["stop s"] = time.monotonic() - began
    began = time.monotonic()
    size.trio.start(*NODES)
    size.wait_for(names, count)
    size.figures["restart s"] = time.monotonic() - began
    size.figures["restart CPU s"] = size.trio.cpu_seconds()
    size.figures["memory after restart MB"] = size.resident_mb()
    _fail_over(size, names, count)


def _fail_over(size: Size, names: list[str], count: int) -> None:
    """Kill a node that is not the active controller; until each partition has a live leader."""
    peer = Peer(size.ports[1])
    size.timed("preferred leaders", lambda: elect_preferred(peer))
    peer.close()
    size.wait_for(names, count)
    victim = max(node for node in NODES if node != quorum_leader(size.ports[1]))
    living = tuple(node for node in NODES if node != victim)
    began, wall = time.monotonic(), time.time()
    size.trio.end(signal.SIGKILL, victim)
    cpu = size.trio.cpu_seconds()
    size.wait_for(names, count, full_isr=False, of=living)
    over = time.monotonic() - began
    size.figures["failover s"] = over
    size.figures["failover CPU s"] = size.trio.cpu_seconds() - cpu
    fenced = fenced_at(size.trio.data(living[0]), victim) - wall
    size.figures["failover after fencing s"] = over - fenced


class ProduceLoop(threading.Thread):
    """Writes records one after another with acks=all, each until it is accepted."""

    def __init__(self, ports: dict[int, int], topic: str, leader: int) -> None:
        super().__init__(daemon=True)
        self._ports = ports
        self._topic = topic
        self._leader = leader
        self._peers: dict[int, Peer] = {}
        self.is_over = False
        self.accepted: list[tuple[float, float]] = []
        """When each record was first sent and when it was accepted, by the wall clock."""

    def run(self) -> None:
        """Write until `is_over`."""
        while not self.is_over:
            began = time.time()
            while not self._attempt() and not self.is_over:
                time.sleep(PAUSE_SECONDS)
                self._look_up()
            self.accepted.append((began, time.time()))
            time.sleep(PAUSE_SECONDS)

    def _attempt(self) -> bool:
        try:
            return self._peer(self._leader).produce(self._topic) == 0
        except OSError:
            self._peers.pop(self._leader, None)
            return False

    def _peer(self, node: int) -> Peer:
        if node not in self._peers:
            self._peers[node] = Peer(self._ports[node], 2)
        return self._peers[node]

    def _look_up(self) -> None:
        for node in self._ports:
            if node == self._leader and len(self._ports) > 1:
                continue
            try:
                partition = self._peer(node).metadata((self._topic,)).topics[0].partitions[0]
            except OSError:
                self._peers.pop(node, None)
                continue
            if partition.leader_id >= 0:
                self._leader = partition.leader_id
                return

    def longest_wait(self, since: float) -> float:
        """Return the longest time that a record accepted since then has waited."""
        return max((end - begin for begin, end in self.accepted if end >= since), default=0.0)


def _produce_to_leader(size: Size) -> tuple[ProduceLoop, int]:
    """Write to a topic that is led by a node that is not the active controller."""
    size.warm()
    active = quorum_leader(size.ports[1])
    leader = max(node for node in NODES if node != active)
    peer = Peer(size.ports[1])
    create_on(peer, "t", [leader, *(node for node in NODES if node != leader)])
    peer.close()
    size.wait_for(["t"], 1)
    loop = ProduceLoop(size.ports, "t", leader)
    loop.start()
    time.sleep(3)
    return loop, leader


def measure_kill(size: Size) -> None:
    """Kill the leader: in all, and from fencing to the first accepted record."""
    loop, leader = _produce_to_leader(size)
    killed = time.time()
    size.trio.end(signal.SIGKILL, leader)
    time.sleep(8)
    loop.is_over = True
    loop.join()
    # a response that was under way may still have been read
    first = max(loop.accepted, key=lambda one: one[1] - one[0])[1]
    other = next(node for node in NODES if node != leader)
    size.figures["kill to accepted s"] = first - killed
    size.figures["fencing to accepted ms"] = 1000 * (
        first - fenced_at(size.trio.data(other), leader)
    )


def measure_stop(size: Size) -> None:
    """Stop the leader cleanly: the longest wait of a record."""
    loop, leader = _produce_to_leader(size)
    began = time.time()
    size.trio.end(signal.SIGTERM, leader)
    size.figures["stop s"] = time.time() - began
    time.sleep(3)
    loop.is_over = True
    loop.join()
    size.figures["longest wait ms"] = 1000 * loop.longest_wait(began)


def measure_idle(size: Size) -> None:
    """CPU of a node while no client does anything."""
    count = size.options.idle_partitions
    names = [f"idle-{number}" for number in range(10)]
    peer = Peer(size.ports[1])
    create(peer, dict.fromkeys(names, count // 10))
    peer.close()
    size.wait_for(names, 10 * (count // 10))
    time.sleep(5)
    before = {node: size.trio.cpu_seconds_of(node) for node in NODES}
    time.sleep(size.options.idle_seconds)
    for node in NODES:
        spent = size.trio.cpu_seconds_of(node) - before[node]
        size.figures[f"node {node} % of a core"] = 100 * spent / size.options.idle_seconds


MEASUREMENTS = {
    "topics": measure_topics,
    "partitions": measure_partitions,
    "kill": measure_kill,
    "stop": measure_stop,
    "idle": measure_idle,
}


def run(name: str, kind: str, options: Options) -> dict[str, float]:
    """Measure once with a new cluster."""
    size = Size(kind, options)
    began = time.monotonic()
    try:
        MEASUREMENTS[name](size)
    finally:
        size.close()
    print(f"{name} {kind}: {time.monotonic() - began:.0f} s in all", flush=True)
    shown = ", ".join(f"{what} {value:.3g}" for what, value in size.figures.items())
    print(f"{name} {kind}: {shown}", flush=True)
    return size.figures


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libs", default="", help="directory of Kafka 4.3.0's jars")
    parser.add_argument("--kind", choices=("both", "ottla", "kafka"), default="both")
    parser.add_argument("--only", choices=tuple(MEASUREMENTS), action="append")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--idle-partitions", type=int, default=1000)
    parser.add_argument(
        "--heap", default="512m", help="of each Kafka node; 2g for 10,000 partitions"
    )
    parser.add_argument("--idle-seconds", type=float, default=20)
    parser.add_argument("--keep", help="empty directory for data and logs, which are kept")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    kinds = ("ottla", "kafka") if given.kind == "both" else (given.kind,)
    directory = Path(given.keep or tempfile.mkdtemp(prefix="ottla-bench-"))
    heap = f"-Xms{given.heap} -Xmx{given.heap}"
    java = java_command(given.libs, directory, heap) if given.libs else []
    options = Options(
        java,
        directory,
        given.topics,
        given.partitions,
        given.idle_partitions,
        given.idle_seconds,
    )
    _check_limits(max(given.partitions, given.topics))
    try:
        failed = [
            name
            for name in given.only or MEASUREMENTS
            if not _compare(name, given.runs, kinds, options)
        ]
    finally:
        if not given.keep:
            shutil.rmtree(directory, ignore_errors=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _check_limits(partitions: int) -> None:
    """Say when Kafka cannot hold so many partitions: one file and two index maps for each."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    maps = int(Path("/proc/sys/vm/max_map_count").read_text())
    if partitions + 1000 > files or 2 * partitions + 5000 > maps:
        print(f"limits are low: {files} open files, vm.max_map_count {maps}", flush=True)


def _compare(name: str, runs: int, kinds: tuple[str, ...], options: Options) -> bool:
    """Measure in alternating runs and print the ratios; whether that worked."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(runs):
        for kind in kinds:
            try:
                found[kind].append(run(name, kind, options))
            except (OSError, RuntimeError) as error:
                print(f"{name} {kind}: FAILED: {error!r}", flush=True)
    if not all(found.values()):
        return False
    if len(kinds) > 1:
        _print_ratios(name, found)
    return True


def _print_ratios(name: str, found: dict[str, list[dict[str, float]]]) -> None:
    for what in found["ottla"][0]:
        ours, theirs = (
            statistics.median(figures[what] for figures in found[kind])
            for kind in ("ottla", "kafka")
        )
        print(f"{name}: {what}: {ours:.3g} / {theirs:.3g} = {ours / theirs:.2f}", flush=True)


if __name__ == "__main__":
    main()
