#!/usr/bin/env python3
"""Kill, pause and isolate nodes of a cluster under load and check the history of its clients.

    scripts/kill_cluster.py --seconds 600 --seed 1

An idempotent acks=all producer and a consumer (librdkafka) run all the time. In the end all nodes
run and are in sync: each acknowledged record is at its offset, no record exists twice, the order
of each partition is that of the producer, the consumer saw what is there and nothing else, and
the files of the three replicas are equal. The page cache survives a killed process; the simulation
tests power loss.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster_history import (
    Lost,
    Seen,
    Sent,
    check_acknowledged,
    check_consumer,
    check_order,
    check_replicas,
)
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from node_processes import NODES, Cluster, Node

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "kill-cluster"
PARTITIONS = 6
PROGRESS_LIMIT_S = 60.0
_TICK_S = 0.05
_CLIENT: dict[str, str | int | float | bool] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 5000,
    "log_level": 0,
}


class Load:
    """A producer and a consumer, each in its thread, and the history."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self.sent: list[Sent] = []
        self.seen: list[Seen] = []
        self.acknowledged = Counter[int]()
        self.errors = Counter[str]()
        self.producers = 0
        self.problem: str | None = None
        self._floors = dict.fromkeys(range(PARTITIONS), -1)
        self._bootstrap = bootstrap
        self._rate = rate
        self._stopped = threading.Event()
        self._sees_all = threading.Event()
        self._producer = threading.Thread(target=self._produce, daemon=True)
        self._consumer = threading.Thread(target=self._consume, daemon=True)

    def start(self) -> None:
        """Start both threads."""
        self._producer.start()
        self._consumer.start()

    def stop_producer(self) -> None:
        """Send nothing more and wait until every record has its answer."""
        self._stopped.set()
        self._producer.join(PROGRESS_LIMIT_S + 10)
        if self._producer.is_alive():
            raise Lost("the producer does not stop")

    def stop_consumer(self, count: int) -> None:
        """Stop the consumer after it has seen this number of records."""
        try:
            wait_for(lambda: len(self.seen) >= count, "the consumer does not reach the end")
        finally:
            self._sees_all.set()
            self._consumer.join(30)

    def _new_producer(self) -> Producer:
        self.producers += 1
        return Producer(
            _CLIENT
            | {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "request.timeout.ms": 10_000,
                "message.timeout.ms": 300_000,
            }
        )

    def _produce(self) -> None:
        producer = self._new_producer()
        random_partition = random.Random(0)
        due = time.monotonic()
        while not self._stopped.is_set():
            due = max(due, time.monotonic() - 1) + _TICK_S
            for _ in range(max(1, round(self._rate * _TICK_S))):
                if len(producer) < 3000 and not self._send(producer, random_partition):
                    producer.flush(1)
                    producer = self._new_producer()
            while time.monotonic() < due:
                producer.poll(max(0.0, due - time.monotonic()))
        producer.flush(PROGRESS_LIMIT_S)

    def _send(self, producer: Producer, rng: random.Random) -> bool:
        """Send one record; return whether the producer is usable."""
        partition = rng.randrange(PARTITIONS)
        one = Sent(partition, self.producers, self._floors[partition])
        number = len(self.sent)
        self.sent.append(one)

        def delivered(error: KafkaError | None, message: Message) -> None:
            one.answered_s = time.time()
            if error is None:
                one.offset = message.offset()
                self._floors[partition] = max(self._floors[partition], message.offset() or 0)
                self.acknowledged[partition] += 1
            else:
                one.error = error.name()
                self.errors[error.name()] += 1

        value = b"%d %s" % (number, b"x" * rng.randrange(100, 1000))
        try:
            producer.produce(TOPIC, value, partition=partition, on_delivery=delivered)
        except KafkaException as raised:
            one.error = raised.args[0].name()
            self.errors[f"produce: {one.error}"] += 1
            return False
        return True

    def _consume(self) -> None:
        consumer = self._reader()
        consumer.assign([TopicPartition(TOPIC, one, 0) for one in range(PARTITIONS)])
        while not self._sees_all.is_set():
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is None:
                    self.seen.append(_seen(message))
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its public name
                    self.problem = f"the consumer's offset does not exist: {error.str()}"
                else:
                    self.errors[f"consumer: {error.name()}"] += 1
        consumer.close()

    def _reader(self) -> Consumer:
        return Consumer(
            _CLIENT
            | {
                "bootstrap.servers": self._bootstrap,
                "group.id": "no-group",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )

    def read_all(self) -> dict[int, list[int]]:
        """Read every partition from start to end; return the numbers of the records by offset."""
        consumer = self._reader()
        logs: dict[int, list[int]] = {}
        for partition in range(PARTITIONS):
            asked = TopicPartition(TOPIC, partition, 0)
            consumer.assign([asked])
            start, end = consumer.get_watermark_offsets(asked, timeout=20)
            if start:
                raise Lost(f"partition {partition} starts at {start}")
            log = logs[partition] = []
            deadline = time.monotonic() + PROGRESS_LIMIT_S
            while len(log) < end:
                for message in consumer.consume(1000, 0.1):
                    if message.error() is not None:
                        raise Lost(f"read of {partition}: {message.error()}")
                    if message.offset() != len(log):
                        raise Lost(f"{partition}/{message.offset()} comes after {len(log) - 1}")
                    log.append(_seen(message).number)
                if time.monotonic() > deadline:
                    raise Lost(f"{partition} cannot be read to its end, {len(log)} of {end}")
        consumer.close()
        return logs


def _seen(message: Message) -> Seen:
    number = int((message.value() or b"").split(b" ", 1)[0])
    return Seen(message.partition() or 0, message.offset() or 0, number)


class Faults:
    """Draws faults from a seed and applies them, one after another."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.count = Counter[str]()
        self._cluster = cluster
        self._rng = rng
        self._kinds: list[Callable[[], str]] = [
            self._kill_one,
            self._kill_one,
            self._kill_two,
            self._pause,
            self._pause,
            self._stop,
            self._pause_and_kill,
            self._isolate,
            self._cut_link,
            self._cut_one_way,
        ]

    def apply_one(self) -> str:
        """Apply a fault and undo it; return what was done."""
        kind = self._rng.choice(self._kinds)
        name = kind.__name__.removeprefix("_")
        self.count[name] += 1
        return f"{name} {kind()}"

    def _draw(self, count: int) -> list[Node]:
        return self._rng.sample(self._cluster.nodes, count)

    def _sleep(self, least_s: float, most_s: float) -> float:
        seconds = self._rng.uniform(least_s, most_s)
        time.sleep(seconds)
        return seconds

    def _kill_one(self) -> str:
        (node,) = self._draw(1)
        node.kill()
        seconds = self._sleep(0, 6)
        node.start()
        return f"{node.files.node_id} {seconds:.1f} s"

    def _kill_two(self) -> str:
        first, second = self._draw(2)
        first.kill()
        if self._rng.random() < 0.5:
            self._sleep(0, 3)
        second.kill()
        self._sleep(0, 4)
        starting = [first, second]
        self._rng.shuffle(starting)
        for one in starting:
            one.start()
            self._sleep(0, 3)
        return f"{first.files.node_id} {second.files.node_id}"

    def _pause(self) -> str:
        (node,) = self._draw(1)
        node.send(signal.SIGSTOP)
        seconds = self._sleep(0.2, 12)
        node.send(signal.SIGCONT)
        return f"{node.files.node_id} {seconds:.1f} s"

    def _pause_and_kill(self) -> str:
        paused, killed = self._draw(2)
        paused.send(signal.SIGSTOP)
        self._sleep(0.2, 8)
        killed.kill()
        self._sleep(0, 2)
        paused.send(signal.SIGCONT)
        self._sleep(0, 3)
        killed.start()
        return f"{paused.files.node_id} {killed.files.node_id}"

    def _cut(self, pairs: list[tuple[int, int]]) -> str:
        self._cluster.links.cut(pairs)
        seconds = self._sleep(0.2, 15)
        self._cluster.links.heal()
        return f"{pairs} {seconds:.1f} s"

    def _isolate(self) -> str:
        one, *others = (node.files.node_id for node in self._draw(NODES))
        return self._cut([pair for other in others for pair in ((one, other), (other, one))])

    def _cut_link(self) -> str:
        one, other = (node.files.node_id for node in self._draw(2))
        return self._cut([(one, other), (other, one)])

    def _cut_one_way(self) -> str:
        one, other = (node.files.node_id for node in self._draw(2))
        return self._cut([(one, other)])

    def _stop(self) -> str:
        (node,) = self._draw(1)
        if not node.files.ready.exists():  # starting: stop it then, too
            self.count["stop while starting"] += 1
        node.stop()
        self._sleep(0, 4)
        node.start()
        return str(node.files.node_id)


def wait_for(condition: Callable[[], bool], problem: str) -> float:
    """Wait until the condition holds; return the seconds. Raises Lost with the problem."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > PROGRESS_LIMIT_S:
            raise Lost(f"{problem} for {PROGRESS_LIMIT_S:.0f} s")
        time.sleep(0.02)
    return time.monotonic() - begun


def run(directory: Path, *, seconds: float, seed: int, rate: int, echo: bool) -> dict[str, Any]:
    """Run the cluster for this time and check the history; return the figures. Raises Lost."""
    rng = random.Random(seed)
    cluster = Cluster(directory)
    cluster.format()
    load = Load(cluster.bootstrap, rate)
    faults = Faults(cluster, rng)
    waits: list[float] = []
    try:
        _start(cluster)
        load.start()
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            time.sleep(rng.uniform(0, 3))
            cluster.check()
            done = faults.apply_one()
            waits.append(_wait_for_progress(cluster, load, done))
            if echo:
                _show(begun, load, faults, done, waits[-1])
        figures = _check(cluster, load)
    finally:
        for node in cluster.nodes:
            if node.process is not None and node.process.poll() is None:
                node.kill()
        _write_history(directory / "history.jsonl", load)
    return figures | {
        "seed": seed,
        "seconds": round(time.monotonic() - begun, 1),
        "faults": dict(faults.count),
        "errors": dict(load.errors),
        "producers": load.producers,
        "wait_seconds_median": round(sorted(waits)[len(waits) // 2], 2),
        "wait_seconds_max": round(max(waits), 2),
    }


def _start(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.start()
    _wait_until_ready(cluster)
    admin = AdminClient(_CLIENT | {"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic(TOPIC, PARTITIONS, NODES, config={"min.insync.replicas": "2"})
    for future in admin.create_topics([topic]).values():
        future.result(20)


def _wait_until_ready(cluster: Cluster) -> None:
    wait_for(
        lambda: all(node.files.ready.exists() for node in cluster.nodes), "a node does not serve"
    )
    cluster.check()


def _wait_for_progress(cluster: Cluster, load: Load, done: str) -> float:
    """Wait until each partition has acknowledged a record that was sent after the fault."""
    before = dict(load.acknowledged)
    first = len(load.sent)
    missing = set(range(PARTITIONS))

    def progresses() -> bool:
        cluster.check()
        for partition in list(missing):
            if load.acknowledged[partition] > before.get(partition, 0) and any(
                one.offset is not None and one.partition == partition for one in load.sent[first:]
            ):
                missing.discard(partition)
        return not missing

    try:
        seconds = wait_for(progresses, "not every partition acknowledges records")
    except Lost as lost:
        raise Lost(f"{lost} after {done}: {sorted(missing)}") from None
    if load.problem:
        raise Lost(f"{load.problem}, after {done}")
    return seconds


def _show(begun: float, load: Load, faults: Faults, done: str, wait_s: float) -> None:
    print(
        f"{time.monotonic() - begun:6.1f} s  {load.acknowledged.total()} acknowledged, "
        f"{len(load.seen)} seen, {faults.count.total()} faults; {done}, "
        f"served after {wait_s:.1f} s",
        file=sys.stderr,
        flush=True,
    )


def _check(cluster: Cluster, load: Load) -> dict[str, Any]:
    """Wait until all replicas are in sync, then check everything."""
    _wait_until_ready(cluster)
    load.stop_producer()
    admin = AdminClient(_CLIENT | {"bootstrap.servers": cluster.bootstrap})
    wait_for(lambda: _is_in_sync(admin), "replicas do not come in sync")
    logs = load.read_all()
    load.stop_consumer(sum(len(log) for log in logs.values()))
    for node in cluster.nodes:
        node.stop()
    check_acknowledged(load.sent, logs)
    check_order(load.sent, logs)
    check_consumer(load.seen, logs)
    batches = sum(
        check_replicas(one, cluster.files_of(TOPIC, one), len(log)) for one, log in logs.items()
    )
    if load.problem:
        raise Lost(load.problem)
    return {
        "sent": len(load.sent),
        "acknowledged": load.acknowledged.total(),
        "found": sum(len(log) for log in logs.values()),
        "seen": len(load.seen),
        "batches_compared": batches,
    }


def _is_in_sync(admin: AdminClient) -> bool:
    try:
        partitions = admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
    except KafkaException:
        return False
    return len(partitions) == PARTITIONS and all(
        len(one.isrs) == NODES for one in partitions.values()
    )


def _write_history(path: Path, load: Load) -> None:
    with path.open("w", encoding="utf-8") as output:
        for number, one in enumerate(list(load.sent)):
            output.write(json.dumps(one.line(number)) + "\n")
        for seen in list(load.seen):
            output.write(json.dumps({"seen": seen._asdict()}) + "\n")


def main() -> int:
    """Run with command line arguments; print the figures and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=200, help="records a second")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument("--directory", help="keep data and history here, also without a failure")
    asked = parser.parse_args()
    directory = Path(asked.directory or tempfile.mkdtemp(prefix="ottla-kill-cluster-")).absolute()
    try:
        figures = run(
            directory,
            seconds=asked.seconds,
            seed=asked.seed,
            rate=asked.rate,
            echo=not asked.json,
        )
    except Lost as lost:
        print(f"seed {asked.seed}: {lost}; data and history: {directory}", file=sys.stderr)
        return 1
    if not asked.directory:
        shutil.rmtree(directory)
    print(json.dumps(figures, indent=None if asked.json else 2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
