"""Latency from produce to a read_committed result, with default settings.

Fifty records per second carry the time at which they were sent, as their key.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any

from ottla.clients.blocking import Admin, Consumer, Producer
from ottla.streams import Consumed, Serdes, Streams, StreamsBuilder, StreamsConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

PER_SECOND = 50
WARM_UP_S = 12.0


def stateless(spark: SparkSession, bootstrap: str, checkpoint: str) -> Callable[[], None]:
    """Start a query that copies a topic; return what stops it."""
    query = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "latency-in")
        .option("startingOffsets", "latest")
        .load()
        .selectExpr("key", "value")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "latency-out")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    return query.stop


def stateful(spark: SparkSession, bootstrap: str, checkpoint: str) -> Callable[[], None]:
    """Start an application that counts by key; return what stops it."""
    builder = StreamsBuilder(StreamsConfig(application_id=f"latency-{time.time_ns()}"))
    rows = builder.stream("latency-in", consumed=Consumed(value=Serdes.bytes()))
    rows.group_by_key().count().to_stream().to("latency-out")
    app = Streams(builder.build(), bootstrap_servers=bootstrap, checkpoint=checkpoint, spark=spark)
    app.start()
    return app.stop


def real_time(spark: SparkSession, bootstrap: str, checkpoint: str) -> Callable[[], None]:
    """Start a copy with Kafka's own connector in Spark's Real-Time Mode; return what stops it."""
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "latency-in")
        .option("startingOffsets", "latest")
        .load()
        .selectExpr("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "latency-out")
        .option("checkpointLocation", checkpoint)
        .outputMode("update")
        .trigger(realTime="5 minutes")
        .start()
    )
    return query.stop


def measure(
    spark: SparkSession, bootstrap: str, start: Callable[..., Callable[[], None]], seconds: float
) -> tuple[float, float]:
    """Return the median and the 99th percentile in ms after a warm-up."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        for topic in ("latency-in", "latency-out"):
            admin.create_topic(topic, partitions=2, if_not_exists=True)
    found: list[tuple[float, float]] = []
    is_over = threading.Event()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        stop = start(spark, bootstrap, checkpoint)
        reader = threading.Thread(target=_read, args=(bootstrap, found, is_over))
        reader.start()
        began = time.time()
        with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            while not found or time.time() - began < WARM_UP_S + seconds:
                if not found:  # the query still starts
                    began = time.time()
                producer.send("latency-in", b"x", str(time.time_ns()).encode())
                time.sleep(1 / PER_SECOND)
        time.sleep(2)
        is_over.set()
        reader.join()
        stop()
    warm = sorted(ms for sent, ms in found if sent > began + WARM_UP_S)
    return statistics.median(warm), warm[int(len(warm) * 0.99)]


def _read(bootstrap: str, found: list[tuple[float, float]], is_over: threading.Event) -> None:
    settings: dict[str, Any] = {
        "group_id": f"latency-{time.time_ns()}",
        "isolation_level": "read_committed",
    }
    with Consumer("latency-out", bootstrap_servers=bootstrap, **settings) as consumer:
        while not is_over.is_set():
            for record in consumer.poll(0.1):
                now_ns = time.time_ns()
                sent_ns = int(record.key)
                found.append((sent_ns / 1e9, (now_ns - sent_ns) / 1e6))
