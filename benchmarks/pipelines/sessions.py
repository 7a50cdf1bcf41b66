"""Start of a session, and what idle queries cost."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from pyspark.find_spark_home import _find_spark_home

from ottla.clients.blocking import Admin
from ottla.spark.jvm.class_archive import ClassArchive
from ottla.spark.jvm.launching import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_JOB = """
import time
began = time.perf_counter()
import ottla.spark
spark = ottla.spark.session("first job")
spark.range(100).count()
print(time.perf_counter() - began)
ottla.spark.stop(spark)
"""
SETTLE_S, WATCH_S = 15.0, 20.0
ARCHIVE_S = 600.0
"""How long the making of a class archive may take, at the lowest priority."""


def first_job() -> float:
    """Return the seconds from the import to the end of a first job, in a process of its own."""
    command = [sys.executable, "-c", FIRST_JOB]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return float(done.stdout.split()[-1])


def make_archive() -> None:
    """Wait for the class archive that a first session leaves to a process in the background."""
    path = ClassArchive(find_java(), Path(_find_spark_home())).path
    deadline = time.monotonic() + ARCHIVE_S
    if not path.exists():
        first_job()
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {path}")
        time.sleep(0.5)


def idle_queries(spark: SparkSession, bootstrap: str, count: int) -> tuple[float, float]:
    """Return the share of a core and the MB for each query that idle queries add."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        for topic in ("idle-in", "idle-out"):
            admin.create_topic(topic, if_not_exists=True)
    before_mb = _memory_mb()
    queries = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        for number in range(count):
            rows = (
                spark.readStream.format("ottla")
                .option("kafka.bootstrap.servers", bootstrap)
                .option("subscribe", "idle-in")
                .load()
                .selectExpr("value")
            )
            queries.append(
                rows.writeStream.format("ottla")
                .option("kafka.bootstrap.servers", bootstrap)
                .option("topic", "idle-out")
                .option("checkpointLocation", f"{directory}/{number}")
                .start()
            )
            # Spark gives a Python process ten seconds to start: not all of them at once
            while "Waiting for data" not in queries[-1].status["message"]:
                assert queries[-1].isActive, queries[-1].exception()
                time.sleep(0.1)
        try:
            time.sleep(SETTLE_S)
            began_s, cpu_s = time.monotonic(), _cpu_s()
            time.sleep(WATCH_S)
            share = (_cpu_s() - cpu_s) / (time.monotonic() - began_s)
            return share, (_memory_mb() - before_mb) / count
        finally:
            for query in queries:
                query.stop()


def _processes() -> list[psutil.Process]:
    """Return the JVM and its workers."""
    return psutil.Process().children(recursive=True)


def _cpu_s() -> float:
    """Return the CPU time of this process and its children, with the driver's threads."""
    total = 0.0
    for one in (psutil.Process(), *_processes()):
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def _memory_mb() -> float:
    """Return the memory of this process and its children; what they share counts once."""
    total = 0
    for one in (psutil.Process(), *_processes()):
        try:
            total += one.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 1e6
