"""Count events per minute and key with Spark, from one topic to another.

ottla server-start &
python examples/spark_windows.py [localhost:9092]
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import TYPE_CHECKING

from pyspark.sql.functions import window

import ottla.spark
from ottla import Admin, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICKS, COUNTS = "page-clicks", "page-clicks-per-minute"
PAGES = ("home", "search", "cart")


def send_clicks(bootstrap: str) -> None:
    """Send ten minutes of clicks with event times, and a later one that closes the windows."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        for name in (CLICKS, COUNTS):
            admin.create_topic(name, partitions=1, if_not_exists=True)
    # two hours ago: retention would remove records with a time of last month
    start_ms = (int(time.time()) // 3600 - 2) * 3_600_000
    with Producer(bootstrap_servers=bootstrap) as producer:
        for second in range(600):
            page = PAGES[second % len(PAGES)]
            producer.send(CLICKS, b"1", page.encode(), timestamp_ms=start_ms + second * 1000)
        producer.send(CLICKS, b"0", b"end", timestamp_ms=start_ms + 3_600_000)
        producer.flush()


def run(spark: SparkSession, bootstrap: str) -> int:
    """Return the number of windows written."""
    send_clicks(bootstrap)
    server = {"kafka.bootstrap.servers": bootstrap}
    clicks = (
        spark.readStream.format("ottla")
        .options(**server, subscribe=CLICKS, startingOffsets="earliest", columns="key,timestamp")
        .load()
        .withWatermark("timestamp", "10 seconds")
    )
    counts = clicks.groupBy("key", window("timestamp", "1 minute").alias("window")).count()
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            counts.selectExpr("key", "to_json(struct(window.start AS minute, count)) AS value")
            .writeStream.format("ottla")
            .options(**server, topic=COUNTS, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
    written = spark.read.format("ottla").options(**server, subscribe=COUNTS).load()
    written.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").show(5, truncate=False)
    return written.count()


def main(bootstrap: str) -> int:
    """Run in a session of its own."""
    spark = ottla.spark.session("clicks")
    try:
        return run(spark, bootstrap)
    finally:
        ottla.spark.stop(spark)


if __name__ == "__main__":
    print(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"), "windows")
