"""Keep running totals in a topic: foreachBatch, because a Python sink cannot take update mode.

Spark may run a micro-batch again after a failure. The totals are keyed, so that a reader who takes
the last record of a key sees the same result.

ottla server-start &
python examples/spark_foreach_batch.py [localhost:9092]
"""

from __future__ import annotations

import sys
import tempfile
from typing import TYPE_CHECKING

import ottla.spark
from ottla import Admin, Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SALES, TOTALS = "sales", "sales-totals"


def send(bootstrap: str) -> None:
    """Send sales of three shops."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        for name in (SALES, TOTALS):
            admin.create_topic(name, partitions=1, if_not_exists=True)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(30):
            producer.send(SALES, str(number), f"shop-{number % 3}")


def run(spark: SparkSession, bootstrap: str) -> dict[str, int]:
    """Write each micro-batch's changed totals; return the last total of every shop."""
    send(bootstrap)
    server = {"kafka.bootstrap.servers": bootstrap}
    sales = spark.readStream.format("ottla").options(
        **server, subscribe=SALES, startingOffsets="earliest", maxOffsetsPerTrigger="20"
    )
    totals = (
        sales.load()
        .selectExpr("CAST(key AS STRING) AS key", "CAST(CAST(value AS STRING) AS BIGINT) AS amount")
        .groupBy("key")
        .sum("amount")
    )

    def write(changed: DataFrame, _batch: int) -> None:
        rows = changed.selectExpr("key", "CAST(`sum(amount)` AS STRING) AS value")
        rows.write.format("ottla").options(**server, topic=TOTALS).mode("append").save()

    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            totals.writeStream.outputMode("update")
            .foreachBatch(write)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
    written = spark.read.format("ottla").options(**server, subscribe=TOTALS).load()
    rows = written.orderBy("offset").selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
    return {row[0]: int(row[1]) for row in rows.collect()}


def main(bootstrap: str) -> dict[str, int]:
    """Run in a session of its own."""
    spark = ottla.spark.session("sales")
    try:
        return run(spark, bootstrap)
    finally:
        ottla.spark.stop(spark)


if __name__ == "__main__":
    print(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
