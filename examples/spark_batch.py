"""Write a DataFrame to a topic and read it back as a batch.

ottla server-start &
python examples/spark_batch.py [localhost:9092]
"""

from __future__ import annotations

import sys

import ottla.spark
from ottla import Admin

TOPIC = "squares"


def main(bootstrap: str) -> int:
    """Return the number of rows read."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        if TOPIC not in {topic.name for topic in admin.list_topics()}:
            admin.create_topic(TOPIC, 4)
    spark = ottla.spark.session("squares")
    options = {"kafka.bootstrap.servers": bootstrap}
    try:
        squares = spark.range(1000).selectExpr(
            "CAST(id AS STRING) AS key", "CAST(id * id AS STRING) AS value"
        )
        squares.write.format("ottla").options(**options, topic=TOPIC).mode("append").save()
        read = spark.read.format("ottla").options(**options, subscribe=TOPIC).load()
        read.selectExpr("partition", "offset", "CAST(key AS STRING)", "CAST(value AS STRING)").show(
            5
        )
        return read.count()
    finally:
        ottla.spark.stop(spark)


if __name__ == "__main__":
    print(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"), "rows")
