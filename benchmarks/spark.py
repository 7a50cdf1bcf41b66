"""Rows per second of the Spark source and sink, compared with the official connector if present.

    python benchmarks/spark.py [--bootstrap-server HOST:PORT] [--jars a.jar,b.jar] [--records N]

Batch read of all columns into the noop sink, and streaming from topic to topic with trigger
availableNow. Each figure is the best of three warm runs; both sources alternate in one session.
Without a server a node is started.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.clients.admin.topics import NewTopic
from ottla.clients.blocking import Admin
from ottla.errors import KafkaError
from ottla.spark.jvm.local_session import session, stop
from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

RUNS = 3
PARTITIONS = 4
SIZES = {"100 B": (100, 1), "1 KB": (1000, 5)}
"""Bytes per value, and the divisor of the number of records."""


def fill(spark: SparkSession, bootstrap: str, topic: str, *, records: int, size: int) -> None:
    """Write the topic once with Ottla's sink."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        made = admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic]
        if isinstance(made, KafkaError):
            return
    (
        spark.range(records)
        .selectExpr(
            "CAST(id AS STRING) AS key", f"rpad(CAST(id * 7919 AS STRING), {size}, 'x') AS value"
        )
        .write.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .mode("append")
        .save()
    )


def read(spark: SparkSession, name: str, bootstrap: str, topic: str, columns: str) -> float:
    """Return the seconds of one batch read into the noop sink."""
    began = time.perf_counter()
    reader = spark.read.format(name).option("kafka.bootstrap.servers", bootstrap)
    if columns and name == "ottla":
        reader = reader.option("columns", columns)
    frame = reader.option("subscribe", topic).load()
    if columns:
        frame = frame.select(*columns.split(","))
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def copy(spark: SparkSession, name: str, bootstrap: str, source: str, target: str) -> float:
    """Return the seconds of the micro-batches of one streaming copy of a topic."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format(name)
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("key", "value")
            .writeStream.format(name)
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", target)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(300):
            raise TimeoutError("the streaming copy did not end")
        return sum(one.durationMs["triggerExecution"] for one in query.recentProgress) / 1000


def best(names: list[str], measure: Callable[[str], float]) -> dict[str, float]:
    """Return each source's best time of several alternating runs after a warm-up."""
    runs = [[measure(name) for name in names] for _ in range(RUNS + 1)]
    return {name: min(column) for name, column in zip(names, zip(*runs, strict=True), strict=True)}


def report(what: str, records: int, seconds: dict[str, float]) -> None:
    """Print rows per second and the ratio to the connector."""
    rates = "  ".join(f"{name} {records / taken:>10,.0f}" for name, taken in seconds.items())
    ratio = f"  {seconds['kafka'] / seconds['ottla']:.1f}x" if "kafka" in seconds else ""
    print(f"{what:36} {rates} rows/s{ratio}", flush=True)


def main() -> None:
    """Run all measurements and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server")
    parser.add_argument("--jars", default="", help="the official connector and its dependencies")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--sizes", default="100 B,1 KB")
    parser.add_argument("--only", choices=("read", "copy"))
    arguments = parser.parse_args()
    if arguments.bootstrap_server:
        run_all(arguments, arguments.bootstrap_server)
        return
    with Cluster() as cluster:
        run_all(arguments, cluster.bootstrap)


def run_all(arguments: argparse.Namespace, bootstrap: str) -> None:
    """Run the measurements on a cluster."""
    names = ["ottla"]
    config = {}
    if arguments.jars:
        names.append("kafka")
        config["spark.jars"] = ",".join(
            str(Path(jar).resolve()) for jar in arguments.jars.split(",")
        )
    spark = session("benchmark", config=config, memory="2g")
    try:
        for title in arguments.sizes.split(","):
            size, divisor = SIZES[title]
            records = arguments.records // divisor
            topic = f"bench-{size}-{records}"
            fill(spark, bootstrap, topic, records=records, size=size)
            if arguments.only != "copy":
                for columns in ("", "key,value", "value"):
                    seconds = best(
                        names,
                        lambda name: read(spark, name, bootstrap, topic, columns),  # noqa: B023
                    )
                    report(f"batch read {title} {columns or 'all columns'}", records, seconds)
            if arguments.only != "read":
                with Admin(bootstrap_servers=bootstrap) as admin:
                    for name in names:
                        admin.create_topics([NewTopic(f"{topic}-to-{name}", PARTITIONS, 1)])
                seconds = best(
                    names,
                    lambda name: copy(spark, name, bootstrap, topic, f"{topic}-to-{name}"),  # noqa: B023
                )
                report(f"stream copy {title}", records, seconds)
    finally:
        stop(spark)


if __name__ == "__main__":
    main()
