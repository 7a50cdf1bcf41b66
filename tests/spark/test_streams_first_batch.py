"""The first micro-batch of an application that starts at a time before now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.errors import StreamingQueryException

from ottla import Admin, Producer
from ottla.streams import AutoOffsetReset, Consumed, Streams, StreamsBuilder, StreamsConfig
from tests.spark.marks import SPARK_WARNINGS
from tests.spark.streams_topics import written

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


DURATION_MS: Final = 120_000
LEFT_MS: Final = 30_000
"""How much later the second record is too old: the first run has begun until then."""


def test_a_repeated_first_micro_batch_starts_as_before(
    spark: SparkSession, node: Cluster, tmp_path: Path
) -> None:
    """Spark asks for the start again, and the time before now is a later one."""

    def application(function: Any) -> Streams:
        builder = StreamsBuilder(StreamsConfig("again"))
        consumed = Consumed(offset_reset_policy=AutoOffsetReset.by_duration(DURATION_MS))
        builder.stream("r-old").map_values(function).to("r-out")
        builder.stream("r-in", consumed=consumed).to("r-out")
        return Streams(
            builder.build(), bootstrap_servers=node.bootstrap, checkpoint=tmp_path, spark=spark
        )

    def send(topic: str, number: int, age_ms: int) -> None:
        time_ms = int(time.time() * 1000) - age_ms
        with Producer(bootstrap_servers=node.bootstrap) as producer:
            producer.send(topic, b"%d" % number, b"k", timestamp_ms=time_ms)

    with Admin(bootstrap_servers=node.bootstrap) as admin:
        for topic in ("r-old", "r-in", "r-out"):
            admin.create_topic(topic, partitions=2)
    send("r-old", 0, 0)
    send("r-in", 1, DURATION_MS + 1_000)
    send("r-in", 2, DURATION_MS - LEFT_MS)
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        application(lambda value: 1 // value).process_available(400)
    time.sleep(LEFT_MS / 1000)
    application(lambda value: value).process_available(400)
    assert sorted(written(node.bootstrap, "r-out")["k"]) == [0, 2]
