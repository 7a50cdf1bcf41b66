"""Join two streams with Spark: orders and their payments within ten minutes.

Both streams need a watermark, and the join a time limit: from them Spark knows when it can drop an
order. An order without a payment is returned with null, when no payment can come any more.

ottla server-start &
python examples/spark_join.py [localhost:9092]
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import TYPE_CHECKING

from pyspark.sql.functions import expr

import ottla.spark
from ottla import Admin, Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS, PAYMENTS, RESULT = "shop-orders", "shop-payments", "shop-paid"
START_MS = (int(time.time()) // 3600 - 3) * 3_600_000
"""Three hours ago: retention would remove records with a time of last month."""
LATE = "1 minute"


def send(bootstrap: str) -> None:
    """Send ten orders, payments two minutes later except for order 7, and an end of both."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        for name in (ORDERS, PAYMENTS, RESULT):
            admin.create_topic(name, partitions=1, if_not_exists=True)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            time_ms = START_MS + number * 60_000
            producer.send(ORDERS, b"order", str(number), timestamp_ms=time_ms)
            if number != 7:
                producer.send(PAYMENTS, b"paid", str(number), timestamp_ms=time_ms + 120_000)
        for topic in (ORDERS, PAYMENTS):  # moves the watermark past everything before
            producer.send(topic, b"end", f"end of {topic}", timestamp_ms=START_MS + 7_200_000)


def stream(spark: SparkSession, bootstrap: str, topic: str, names: tuple[str, str]) -> DataFrame:
    """Return a topic as a stream of (key, time) with the given names."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    key, time = names
    return (
        spark.readStream.format("ottla")
        .options(**options, startingOffsets="earliest", columns="key,timestamp")
        .load()
        .selectExpr(f"CAST(key AS STRING) AS {key}", f"timestamp AS {time}")
        .withWatermark(time, LATE)
    )


def joined(spark: SparkSession, bootstrap: str) -> DataFrame:
    """Return each order with the time of its payment, null for an order without one."""
    orders = stream(spark, bootstrap, ORDERS, ("order", "ordered"))
    payments = stream(spark, bootstrap, PAYMENTS, ("payment", "paid"))
    return orders.join(
        payments,
        expr("order = payment AND paid BETWEEN ordered AND ordered + INTERVAL 10 MINUTES"),
        "leftOuter",
    )


def run(spark: SparkSession, bootstrap: str) -> dict[str, bool]:
    """Join what is there and return whether each order was paid."""
    send(bootstrap)
    server = {"kafka.bootstrap.servers": bootstrap}
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            joined(spark, bootstrap)
            .selectExpr("order AS key", "to_json(struct(ordered, paid)) AS value")
            .writeStream.format("ottla")
            .options(**server, topic=RESULT, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
    result = spark.read.format("ottla").options(**server, subscribe=RESULT).load()
    rows = result.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING) LIKE '%paid%'").collect()
    return {row[0]: row[1] for row in rows}


def main(bootstrap: str) -> dict[str, bool]:
    """Run in a session of its own."""
    spark = ottla.spark.session("orders and payments")
    try:
        return run(spark, bootstrap)
    finally:
        ottla.spark.stop(spark)


if __name__ == "__main__":
    print(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
