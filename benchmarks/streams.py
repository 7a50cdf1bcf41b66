"""Rows per second of `ottla.streams` and of the exactly-once sink, in alternating runs.

    python benchmarks/streams.py [--records N] [--quix PYTHON] [--only sink|columns|windows]

`sink`: a streaming copy, exactly once and at least once. `columns`: a filter and a new value as
Spark columns and as Python functions. `windows`: a windowed count by key from topic to topic, and
the same in quixstreams, run by the Python of an environment that has it. A node is started.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.clients.blocking import Admin, Producer
from ottla.spark.local_session import session, stop
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
PARTITIONS = 2
KEYS = 100
MINUTE_MS = 60_000
SPAN_MS = 10 * MINUTE_MS
QUIX = """
import sys, time
from datetime import timedelta
from quixstreams import Application

app = Application(
    broker_address=sys.argv[1], consumer_group=f"quix-{time.time_ns()}", state_dir=sys.argv[3],
    auto_offset_reset="earliest", loglevel="ERROR",
)
source = app.topic("bench", value_deserializer="json", key_deserializer="str")
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
        for topic in ("bench", "copied", "dear", "windows", "quix-out"):
            admin.create_topic(topic, partitions=PARTITIONS)
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


def report(what: str, records: int, measured: dict[str, Callable[[], float]]) -> None:
    """Print the best rates of alternating runs after a warm-up, and their ratio."""
    found: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(RUNS + 1):
        for name, measure in measured.items():
            found[name].append(measure())
    rates = {name: records / min(times[1:]) for name, times in found.items()}
    shown = "  ".join(f"{name} {rate:>9,.0f}" for name, rate in rates.items())
    first, *_, last = rates.values() if len(rates) > 1 else (*rates.values(), *rates.values())
    print(f"{what:10} {shown} rows/s  {first / last:.2f}x", flush=True)


def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--quix", help="a Python that has quixstreams")
    parser.add_argument("--only", choices=("sink", "columns", "windows"))
    arguments: Any = parser.parse_args()
    with Cluster() as cluster:
        at, records = cluster.bootstrap, arguments.records
        fill(at, records)
        spark = session("benchmark", memory="2g", class_cache=False)
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
        report("windows", records, counted)


if __name__ == "__main__":
    main()
