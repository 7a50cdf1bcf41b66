"""Write a DataFrame to a topic and read it back as a batch.

ottla server-start &
python examples/spark_batch.py [localhost:9092]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import ottla.spark
from ottla import Admin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "squares"


def run(spark: SparkSession, bootstrap: str) -> int:
    """Return the number of rows read."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=4, if_not_exists=True)
    options = {"kafka.bootstrap.servers": bootstrap}
    squares = spark.range(1000).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(id * id AS STRING) AS value"
    )
    # A Python data source needs a mode; the default of Spark is refused.
    squares.write.format("ottla").options(**options, topic=TOPIC).mode("append").save()
    read = spark.read.format("ottla").options(**options, subscribe=TOPIC).load()
    read.selectExpr("partition", "offset", "CAST(key AS STRING)", "CAST(value AS STRING)").show(5)
    return read.count()


def main(bootstrap: str) -> int:
    """Run in a session of its own."""
    spark = ottla.spark.session("squares")
    try:
        return run(spark, bootstrap)
    finally:
        ottla.spark.stop(spark)


if __name__ == "__main__":
    print(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"), "rows")
