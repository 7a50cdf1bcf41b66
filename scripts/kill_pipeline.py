#!/usr/bin/env python3
"""Kill a chain of two Spark queries and its broker at random; nothing may be lost or doubled.

    scripts/kill_pipeline.py --kills 10 --seed 1

Numbers go into a topic all the time; one query copies them to a second topic, another one from
there to a third, with read_committed, each exactly once. Killed with SIGKILL: the driver with its
workers, one Python worker, or the broker. At the end the committed records of the third topic are
the numbers that were acknowledged, each once, and both groups have no lag.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from pathlib import Path

import psutil

from ottla import Admin, Consumer, KafkaError, Producer, TopicPartition
from ottla.testing.cluster import Cluster

TOPICS = ("chain-1", "chain-2", "chain-3")
PARTITIONS = 2
END_LIMIT_S = 240.0
START_LIMIT_S = 600.0
EARLY = 0.2
"""How often a fault comes while the queries still start."""
_FAILURES, _FAILURE_S = 6, 30.0


class Wrong(AssertionError):
    """A violated guarantee, in one line."""


def run_queries(bootstrap: str, directory: str) -> None:
    """Run both queries until this process is killed; a query that fails is started again.

    The process ends where queries fail again and again: a JVM may be damaged for good (Spark's
    "Task not serializable" after a race of two queries was seen).
    """
    from ottla.spark import session

    spark = session("kill pipeline", class_cache=False, fast_start=True)

    def start(number: int) -> object:
        return (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", TOPICS[number])
            .option("startingOffsets", "earliest")
            .option("kafka.isolation.level", "read_committed")
            .load()
            .selectExpr("value")
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("kafka.group.id", f"query-{number}")
            .option("topic", TOPICS[number + 1])
            .option("checkpointLocation", f"{directory}/checkpoint-{number}")
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    queries = {number: start(number) for number in (0, 1)}
    print("started", flush=True)
    failures: deque[float] = deque(maxlen=_FAILURES)
    while True:
        time.sleep(0.5)
        for number, query in queries.items():
            if not query.isActive:  # type: ignore[attr-defined] # a StreamingQuery
                print(f"query {number}: {str(query.exception())[:300]}", flush=True)  # type: ignore[attr-defined]
                failures.append(time.monotonic())
                if len(failures) == _FAILURES and failures[-1] - failures[0] < _FAILURE_S:
                    os._exit(1)
                queries[number] = start(number)


class Driver:
    """The process that runs the queries, with all its children."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._command = [sys.executable, __file__, "--run", bootstrap, str(directory)]
        self._log = directory / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._before = 0

    def start(self) -> None:
        """Start the process."""
        self._before = self._starts()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True
            )

    def _starts(self) -> int:
        return self._log.read_text(errors="replace").count("started\n") if self._log.exists() else 0

    def wait_until_started(self) -> None:
        """Wait until both queries run, however busy the machine is."""
        deadline = time.monotonic() + START_LIMIT_S
        while self._starts() == self._before and time.monotonic() < deadline:
            self.watch()
            time.sleep(0.2)

    def watch(self) -> None:
        """Start it again if it has ended by itself, as a supervisor does."""
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """Kill it with its JVM and its workers."""
        assert self._process is not None
        if self._process.poll() is not None:
            return
        children = psutil.Process(self._process.pid).children(recursive=True)
        os.killpg(self._process.pid, signal.SIGKILL)
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.wait()

    def kill_worker(self, rng: random.Random) -> bool:
        """Kill one of Spark's Python workers; False while there is none."""
        assert self._process is not None
        workers = [
            one
            for one in psutil.Process(self._process.pid).children(recursive=True)
            if "pyspark" in " ".join(_command_of(one)) and "java" not in one.name()
        ]
        if not workers:
            return False
        try:
            rng.choice(workers).kill()
        except psutil.NoSuchProcess:
            return False
        return True


def _command_of(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


class Feed:
    """Sends numbers; those that were acknowledged must arrive."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self.count = 0
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def stop(self) -> None:
        """Wait until all that was sent is acknowledged."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            while not self._stop.wait(0.02):
                for _ in range(20):
                    number = self.count
                    producer.send(TOPICS[0], b"%d" % number, partition=number % PARTITIONS)
                    self.count += 1
            producer.flush(120)


def committed_numbers(bootstrap: str) -> Counter[int]:
    """Return how often each number is in the last topic, as committed."""
    found: Counter[int] = Counter()
    with Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        partitions = [TopicPartition(TOPICS[-1], index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(one) < ends[one] for one in partitions):
            found.update(int(record.value) for record in consumer.poll(0.2))
    return found


def lag(bootstrap: str) -> int:
    """Return the lag of both groups; a large number while one has no offsets."""
    total = 0
    with (
        Admin(bootstrap_servers=bootstrap) as admin,
        Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer,
    ):
        for number in (0, 1):
            offsets = admin.list_group_offsets(f"query-{number}")
            if not offsets:
                return sys.maxsize
            ends = consumer.end_offsets(list(offsets))
            total += sum(ends[part] - one.offset for part, one in offsets.items())
    return total


def check(bootstrap: str, count: int, driver: Driver) -> None:
    """Wait until all has arrived; raise Wrong for what is lost or doubled."""
    driver.wait_until_started()
    deadline = time.monotonic() + END_LIMIT_S
    while time.monotonic() < deadline:
        driver.watch()
        found = committed_numbers(bootstrap)
        if len(found) >= count and lag(bootstrap) == 0:
            break
        time.sleep(1)
    found = committed_numbers(bootstrap)
    doubled = [number for number, times in found.items() if times > 1]
    missing = [number for number in range(count) if number not in found]
    if doubled or missing:
        raise Wrong(f"{len(doubled)} doubled {doubled[:5]}, {len(missing)} missing {missing[:5]}")
    if lag(bootstrap):
        raise Wrong(f"the groups have a lag of {lag(bootstrap)}")


def fault(rng: random.Random, cluster: Cluster, driver: Driver) -> str:
    """Kill something; return what."""
    kind = rng.choice(("driver", "driver", "worker", "broker"))
    if kind == "driver":
        driver.kill()
        driver.start()
    elif kind == "worker" and not driver.kill_worker(rng):
        return "nothing"
    elif kind == "broker":
        cluster.kill(1)
        time.sleep(rng.uniform(0, 3))
        cluster.start(1)
    return kind


def main() -> int:
    """Run the kills; print what was found as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run_queries(*arguments.run)
    rng = random.Random(arguments.seed)
    faults: Counter[str] = Counter()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        Cluster(data_dir=str(Path(directory) / "data")) as cluster,
    ):
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            for topic in TOPICS:
                admin.create_topic(topic, partitions=PARTITIONS)
        feed, driver = Feed(cluster.bootstrap), Driver(cluster.bootstrap, Path(directory))
        feed.start()
        driver.start()
        try:
            for _ in range(arguments.kills):
                if rng.random() >= EARLY:
                    driver.wait_until_started()
                time.sleep(rng.uniform(6, 22))
                driver.watch()
                faults[fault(rng, cluster, driver)] += 1
            feed.stop()
            check(cluster.bootstrap, feed.count, driver)
        except (Wrong, KafkaError) as error:
            print((Path(directory) / "driver.log").read_text()[-5000:], file=sys.stderr)
            print(f"WRONG: {error}", file=sys.stderr)
            return 1
        finally:
            feed.stop()
            driver.kill()
    print(json.dumps({"records": feed.count, "faults": dict(faults), "result": "each once"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
