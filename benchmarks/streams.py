"""Speed of `ottla.streams` and of the exactly-once sink, with the ratios that are asked of them.

    python benchmarks/streams.py [--records N] [--quix PYTHON] [--java] [--only PART]

`sink`: a streaming copy, exactly once and at least once. `columns`: a filter and a new value as
Spark columns and as Python functions. `windows`: a windowed count by key from topic to topic, the
same in quixstreams on one core (run by the Python of an environment that has it), and in Kafka
Streams on two (its jars are fetched by Maven). `latency`: from produce to result. `start`: a
session with its first job, the second time. `idle`: 20 idle queries. `realtime` (with --jars, those
of Kafka's own connector): latency in Spark's Real-Time Mode. A node is started.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.latency import measure, real_time, stateful, stateless
from pipelines.sessions import first_job, idle_queries, make_archive

from ottla.clients.blocking import Admin, Producer
from ottla.spark.jvm.local_session import session, stop
from ottla.streams import (
    Consumed,
    Serdes,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    expr,
)
from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from ottla.streams import Topology

RUNS = 3
PARTS = ("sink", "columns", "windows", "latency", "start", "idle", "realtime")
PARTITIONS = 2
KEYS = 100
MINUTE_MS = 60_000
SPAN_MS = 10 * MINUTE_MS
QUIX = """
import sys, time
from datetime import timedelta
from quixstreams import Application

import os
os.sched_setaffinity(0, {0})
app = Application(
    broker_address=sys.argv[1], consumer_group=f"quix-{time.time_ns()}", state_dir=sys.argv[3],
    auto_offset_reset="earliest", loglevel="ERROR",
)
source = app.topic("bench", value_deserializer="bytes", key_deserializer="str")
target = app.topic("quix-out", value_serializer="json")
frame = app.dataframe(source)
frame = frame.tumbling_window(duration_ms=timedelta(minutes=1)).count().current().to_topic(target)
count = int(sys.argv[2])
began = time.perf_counter()
app.run(count=count, timeout=120)
print(count / (time.perf_counter() - began))
"""


def fill(bootstrap: str, records: int) -> None:
    """Send records of a hundred keys over ten minutes of event time."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        for topic in ("bench", "copied", "dear", "windows", "quix-out", "java-out"):
            # the records' times are of long ago
            admin.create_topic(topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(records):
            value = json.dumps({"n": number, "text": "x" * 80}).encode()
            key = str(number % KEYS).encode()
            producer.send("bench", value, key, timestamp_ms=number * SPAN_MS // records + 1)
        producer.flush()


def copy(spark: SparkSession, bootstrap: str, *, exactly_once: bool) -> float:
    """Return the seconds of the micro-batches of a copy."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", "bench")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "250000")
            .load()
            .selectExpr("key", "value")
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", "copied")
            .option("exactlyOnce", str(exactly_once).lower())
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(600):
            raise TimeoutError("the copy did not end")
        return sum(one.durationMs["triggerExecution"] for one in query.recentProgress) / 1000


def application(spark: SparkSession, bootstrap: str, topology: Topology) -> float:
    """Return the seconds of the micro-batches of an application."""
    with tempfile.TemporaryDirectory() as checkpoint:
        app = Streams(topology, bootstrap_servers=bootstrap, checkpoint=checkpoint, spark=spark)
        app.process_available()
        assert app.query is not None
        return sum(one.durationMs["triggerExecution"] for one in app.query.recentProgress) / 1000


def filtered(*, with_columns: bool) -> Topology:
    """Return a filter and a new value."""
    builder = StreamsBuilder(StreamsConfig(application_id=f"columns-{time.time_ns()}"))
    serde = Serdes.json(schema="n BIGINT, text STRING")
    rows = builder.stream("bench", consumed=Consumed(value=serde))
    if with_columns:
        rows.filter(expr("value.n % 2 = 0")).map_values(expr("value.n")).to("dear")
    else:
        rows.filter(lambda _, v: v["n"] % 2 == 0).map_values(lambda v: v["n"]).to("dear")
    return builder.build()


def windows() -> Topology:
    """Return a windowed count."""
    builder = StreamsBuilder(StreamsConfig(application_id=f"windows-{time.time_ns()}"))
    rows = builder.stream("bench", consumed=Consumed(value=Serdes.bytes()))
    counts = rows.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(MINUTE_MS)).count()
    counts.to_stream().map(lambda key, count: (key.key, count)).to("windows")
    return builder.build()


def quix(python: str, bootstrap: str, records: int) -> float:
    """Return the seconds of the same count in quixstreams, without its start."""
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "count.py"
        program.write_text(QUIX)
        command = [python, str(program), bootstrap, str(records), directory]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        return records / float(done.stdout.split()[-1])


def java(bootstrap: str, records: int) -> float:
    """Return the seconds of the same count in Kafka Streams, without its start."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.streams.oracle import streams_jars

    kafka = streams_jars()
    classes = kafka.compile(Path(__file__).parent / "pipelines" / "WindowCount.java")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        arguments = ("WindowCount", bootstrap, str(records), directory)
        command = kafka.command(*arguments, classes=classes, heap_mb=1024)
        command.remove("-XX:TieredStopAtLevel=1")  # a server, not a test
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        return records / float(done.stdout.split()[-1])


def report(what: str, records: int, measured: dict[str, Callable[[], float]]) -> None:
    """Print the best rates of alternating runs after a warm-up, and their ratio."""
    found: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(RUNS + 1):
        for name, run in measured.items():
            found[name].append(run())
    rates = {name: records / min(times[1:]) for name, times in found.items()}
    shown = "  ".join(f"{name} {rate:>9,.0f}" for name, rate in rates.items())
    first, *others = rates.items()
    ratios = "  ".join(f"{first[1] / rate:.2f}x {name}" for name, rate in others)
    print(f"{what:10} {shown} rows/s  {ratios}", flush=True)


def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--quix", help="a Python that has quixstreams")
    parser.add_argument("--java", action="store_true", help="compare with Kafka Streams, too")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each latency")
    parser.add_argument("--queries", type=int, default=20, help="how many are idle")
    parser.add_argument("--jars", help="Kafka's connector for Spark and what it needs, a,b")
    parser.add_argument("--only", choices=PARTS)
    arguments: Any = parser.parse_args()
    with Cluster() as cluster:
        at, records = cluster.bootstrap, arguments.records
        if arguments.only not in ("start", "latency", "idle"):
            fill(at, records)
        if arguments.only in (None, "start"):
            make_archive()
            print(f"start      {first_job():.1f} s to the end of a session's first job", flush=True)
        if arguments.only == "start":
            return
        config = {"spark.jars": arguments.jars} if arguments.jars else {}
        spark = session("benchmark", config=config, memory="2g", class_cache=False)
        try:
            run_all(spark, at, records, arguments)
        finally:
            stop(spark)


def run_all(spark: SparkSession, at: str, records: int, arguments: Any) -> None:
    """Run what was chosen."""
    if arguments.only in (None, "sink"):
        sinks = {
            "exactly once": lambda: copy(spark, at, exactly_once=True),
            "at least once": lambda: copy(spark, at, exactly_once=False),
        }
        report("sink", records, sinks)
    if arguments.only in (None, "columns"):
        kinds = {
            "columns": lambda: application(spark, at, filtered(with_columns=True)),
            "functions": lambda: application(spark, at, filtered(with_columns=False)),
        }
        report("columns", records, kinds)
    if arguments.only in (None, "windows"):
        counted = {"ottla": lambda: application(spark, at, windows())}
        if arguments.quix:
            counted["quixstreams"] = lambda: quix(arguments.quix, at, records)
        if arguments.java:
            counted["Kafka Streams"] = lambda: java(at, records)
        report("windows", records, counted)
    starts = [stateless, stateful] if arguments.only in (None, "latency") else []
    if arguments.jars and arguments.only in (None, "realtime"):
        starts.append(real_time)
    for start in starts:
        median, worst = measure(spark, at, start, arguments.seconds)
        name = start.__name__
        print(f"latency    {name} p50 {median:.0f} ms, p99 {worst:.0f} ms", flush=True)
    if arguments.only in (None, "idle"):
        share, memory_mb = idle_queries(spark, at, arguments.queries)
        shown = f"{arguments.queries} queries: {share:.1%} of a core, {memory_mb:.0f} MB each"
        print(f"idle       {shown}", flush=True)


if __name__ == "__main__":
    main()
