"""`ottla.streams` on Spark: wrapped processors, with stores of the wrapper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla import Admin, Producer
from ottla.streams import Produced, Serdes, Streams, StreamsBuilder, StreamsConfig
from tests.spark.marks import SPARK_WARNINGS
from tests.spark.streams_topics import written
from tests.streams.wrappers import Tally

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.testing.cluster import Cluster

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.spark,
    pytest.mark.timeout(1500),
    *SPARK_WARNINGS,
]


def test_a_wrapper_counts_the_records_of_each_processor(
    spark: SparkSession, node: Cluster, tmp_path: Path
) -> None:
    """In stores that are read like others; each update of a count is forwarded."""
    builder = StreamsBuilder(StreamsConfig("wrapped", processor_wrapper_class=Tally))
    counts = builder.stream("w-in").group_by(lambda _, value: str(value)).count()
    counts.to_stream(name="updates").to("w-out", Produced(value=Serdes.json()))
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        for topic in ("w-in", "w-out"):
            admin.create_topic(topic, partitions=2)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for _ in range(3):
            producer.send("w-in", b"7", b"k", partition=0)
    app = Streams(
        builder.build(), bootstrap_servers=node.bootstrap, checkpoint=tmp_path, spark=spark
    )
    app.process_available(400)
    assert written(node.bootstrap, "w-out") == {"7": [1, 2, 3]}
    assert app.store("seen-updates").get("wrapped") == 3
