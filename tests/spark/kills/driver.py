"""The process that runs a chain of two queries, and what can be killed in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ottla.spark import session
from ottla.spark.jvm.options import is_local

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROOT = Path(__file__).parents[3]
TOPICS = ("chain-1", "chain-2", "chain-3")
PARTITIONS = 2
START_LIMIT_S = 600.0
_FAILURES, _FAILURE_S = 6, 30.0


def start_query(
    spark: SparkSession, bootstrap: str, directory: Path, number: int
) -> StreamingQuery:
    """Start the copy of one topic of the chain to the next."""
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
        .option("checkpointLocation", str(directory / f"checkpoint-{number}"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )


def run_queries(bootstrap: str, directory: Path, master: str) -> None:
    """Run both queries until this process is killed; a query that fails is started again.

    The process ends where queries fail again and again: a JVM may be damaged for good (Spark's
    "Task not serializable" after a race of two queries was seen).
    """
    spark = session("kill pipeline", master=master, fast_start=True)
    queries = {number: start_query(spark, bootstrap, directory, number) for number in (0, 1)}
    print("started", flush=True)
    failures: deque[float] = deque(maxlen=_FAILURES)
    while True:
        time.sleep(0.5)
        for number, query in queries.items():
            if not query.isActive:
                print(f"query {number}: {str(query.exception())[:300]}", flush=True)
                failures.append(time.monotonic())
                if len(failures) == _FAILURES and failures[-1] - failures[0] < _FAILURE_S:
                    os._exit(1)
                queries[number] = start_query(spark, bootstrap, directory, number)


class Driver:
    """The process that runs the queries, with all its children."""

    def __init__(self, bootstrap: str, directory: Path, master: str) -> None:
        run = f"from pathlib import Path; from {__name__} import run_queries; "
        call = f"run_queries({bootstrap!r}, Path({str(directory)!r}), {master!r})"
        self._command = [sys.executable, "-c", run + call]
        self.log = directory / "driver.log"
        self.has_executors = not is_local(master)
        self._process: subprocess.Popen[bytes] | None = None
        self._before = 0

    def start(self) -> None:
        """Start the process."""
        self._before = self._starts()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )

    def _starts(self) -> int:
        return self.log.read_text(errors="replace").count("started\n") if self.log.exists() else 0

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
        """Kill one of Spark's Python workers in this process; False while there is none."""
        assert self._process is not None
        return kill_one(self._process.pid, rng, is_worker)


def kill_one(pid: int, rng: random.Random, is_chosen: Callable[[psutil.Process], bool]) -> bool:
    """Kill one of the process's descendants that are chosen; False while there is none."""
    found = [one for one in descendants(pid) if is_chosen(one)]
    if not found:
        return False
    try:
        rng.choice(found).kill()
    except psutil.NoSuchProcess:
        return False
    return True


def descendants(pid: int) -> Iterator[psutil.Process]:
    """Yield the children of a process and theirs."""
    try:
        yield from psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return


def is_worker(process: psutil.Process) -> bool:
    """Whether it is one of Spark's Python processes, or what they are forked from."""
    words = " ".join(command_of(process))
    return any(one in words for one in ("pyspark", "ottla.spark.forking")) and (
        "java" not in process.name()
    )


def is_executor(process: psutil.Process) -> bool:
    """Whether it is an executor of a standalone cluster."""
    return any("CoarseGrainedExecutorBackend" in word for word in command_of(process))


def command_of(process: psutil.Process) -> list[str]:
    """Return its command line; an empty one if it has just ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
