#!/usr/bin/env python3
"""Kill a node with SIGKILL repeatedly under load and check that no record was lost.

    scripts/kill_loop.py --kills 50

An idempotent acks=all producer and a committing consumer (librdkafka) run all the time. At the
end every acknowledged record is at its offset, no record exists twice, offsets have no gap, and no
acknowledged commit of the group was lost. The page cache survives a killed process; the simulation
tests power loss.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "kill-loop"
GROUP = "kill-loop-group"
PARTITIONS = 3
START_LIMIT_S = 30.0


class Lost(AssertionError):
    """A violated guarantee, in one line."""


class Server:
    """A node in its own process, always with the same port and directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = _free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start the node; return the seconds until it is ready."""
        ready = self.directory / "ready.json"
        ready.unlink(missing_ok=True)
        begun = time.monotonic()
        command = [sys.executable, "-m", "ottla", "server-start", "--port", str(self.port)]
        settings = {
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.num.partitions": "5",
            "group.initial.rebalance.delay.ms": "0",
        }
        for name, value in settings.items():
            command += ["--override", f"{name}={value}"]
        with (self.directory / "node.log").open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "--ready-file", str(ready)], stdout=output, stderr=output
            )
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() - begun > START_LIMIT_S:
                raise Lost(f"the node does not start; see {self.directory / 'node.log'}")
            time.sleep(0.01)
        return time.monotonic() - begun

    def kill(self) -> None:
        """Kill the node with SIGKILL."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


class Load:
    """A producer and a committing consumer, each in its thread, and their acknowledgements."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.refused: Counter[str] = Counter()
        self.committed: dict[int, int] = {}
        self.commits = 0
        self.sent = 0
        self._stopped = threading.Event()
        self._bootstrap = bootstrap
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._produce, self._commit)
        ]

    def start(self) -> None:
        """Start both threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Flush the producer and stop both threads."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(60)
            if thread.is_alive():
                raise Lost("a client does not stop")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        number = int((message.value() or b"").split(b" ", 1)[0])
        if error is not None:
            self.refused[error.name()] += 1
        else:
            self.acknowledged[number] = (message.partition() or 0, message.offset() or 0)

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        filler = b"x" * 200
        while not self._stopped.is_set():
            if len(producer) < 5000:
                for _ in range(50):
                    self.sent += 1
                    producer.produce(
                        TOPIC, b"%d %s" % (self.sent, filler), on_delivery=self._delivered
                    )
            producer.poll(0.01)
        producer.flush(50)

    def _commit(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "session.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
        consumer.subscribe([TOPIC])
        while not self._stopped.is_set():
            if not consumer.consume(500, 0.05):
                continue
            try:
                answer = consumer.commit(asynchronous=False)
            except KafkaException:
                continue
            for one in answer or []:
                if one.error is None:
                    self.commits += 1
                    self.committed[one.partition] = one.offset
        consumer.close()


def run(kills: int, directory: Path, *, seed: int = 1) -> dict[str, Any]:
    """Kill the node this number of times; return the figures. Raises Lost."""
    rng = random.Random(seed)
    server = Server(directory)
    starts = [server.start()]
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result(20)
    load = Load(server.bootstrap)
    load.start()
    try:
        for _ in range(kills):
            before = len(load.acknowledged)
            _wait_for(
                lambda before=before: len(load.acknowledged) > before, "no record is acknowledged"
            )
            time.sleep(rng.uniform(0.05, 0.8))
            server.kill()
            starts.append(server.start())
        _wait_for(lambda: len(load.committed) == PARTITIONS, "no commit was acknowledged")
        load.stop()
        found = _check(server.bootstrap, load)
        commits = _check_commits(server.bootstrap, load)
    finally:
        server.kill()
    return {
        "kills": kills,
        "sent": load.sent,
        "acknowledged": len(load.acknowledged),
        "refused": dict(load.refused),
        "found": found,
        "commits_acknowledged": load.commits,
        "group_offsets": commits,
        "start_seconds_median": round(sorted(starts)[len(starts) // 2], 2),
        "start_seconds_max": round(max(starts), 2),
    }


def _wait_for(condition: Any, problem: str) -> None:
    deadline = time.monotonic() + 40
    while not condition():
        if time.monotonic() > deadline:
            raise Lost(problem)
        time.sleep(0.01)


def _check(bootstrap: str, load: Load) -> int:
    """Read all records, check the guarantees, and return the number of records."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "checker", "enable.auto.commit": False}
    )
    seen: Counter[int] = Counter()
    places: dict[tuple[int, int], int] = {}
    for partition in range(PARTITIONS):
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=20)
        next_offset = 0
        while next_offset < end:
            for message in consumer.consume(1000, 0.1):
                if message.error() is not None:
                    raise Lost(str(message.error()))
                if message.offset() != next_offset:
                    raise Lost(f"{partition}: {message.offset()} comes after {next_offset - 1}")
                next_offset += 1
                number = int((message.value() or b"").split(b" ", 1)[0])
                seen[number] += 1
                places[partition, message.offset() or 0] = number
    consumer.close()
    twice = [number for number, count in seen.items() if count > 1]
    if twice:
        raise Lost(f"{len(twice)} records exist twice, the first is {twice[0]}")
    lost = [n for n, place in load.acknowledged.items() if places.get(place) != n]
    if lost:
        raise Lost(f"{len(lost)} acknowledged records are not at their offset, such as {lost[0]}")
    return len(places)


def _check_commits(bootstrap: str, load: Load) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    asked = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    answered = {one.partition: one.offset for one in consumer.committed(asked, timeout=20)}
    consumer.close()
    for partition, offset in load.committed.items():
        if answered[partition] < offset:
            raise Lost(
                f"commit {offset} of {partition} was acknowledged; {answered[partition]} is stored"
            )
    return answered


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def main() -> None:
    """Run with command line arguments and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--directory", help="keep the data in this directory instead of a temporary one"
    )
    asked = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-kill-") as temporary:
        directory = Path(asked.directory or temporary)
        directory.mkdir(parents=True, exist_ok=True)
        figures = run(asked.kills, directory, seed=asked.seed)
    figures["seconds"] = round(time.monotonic() - begun, 1)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
