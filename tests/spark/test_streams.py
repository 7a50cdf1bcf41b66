"""`ottla.streams` on Spark: from topic to topic, over restarts, as in the pipeline driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Producer
from ottla.streams import (
    KeyQuery,
    KeyQueryMetadata,
    Materialized,
    Serdes,
    StateQueryRequest,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
)
from tests.spark.marks import SPARK_WARNINGS
from tests.spark.streams_topics import latest

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


def builder(name: str) -> StreamsBuilder:
    """Return a topology: one without state, counts by another key, a foreign-key join."""
    made = StreamsBuilder(StreamsConfig(application_id=name))
    numbers = made.stream("numbers").filter(lambda _, value: value > 0)
    numbers.map_values(lambda value: value * 2).to("doubled")
    numbers.group_by(lambda _, value: str(value % 3)).count(
        materialized=Materialized("by-rest")
    ).to_stream().to("counts")
    cities = made.table("cities")
    people = made.table("people")
    joined = people.join(
        cities, lambda person, city: [person["name"], city], foreign_key=lambda _, v: v["city"]
    )
    joined.to_stream().to("homes")
    return made


def test_a_topology_runs_from_topic_to_topic(
    spark: SparkSession, node: Cluster, tmp_path: Path
) -> None:
    """State and offsets last over a restart; stores can be read; a changed one is refused."""
    json = Serdes.json()

    def send(*records: tuple[str, str, Any]) -> None:
        with Producer(bootstrap_servers=node.bootstrap) as producer:
            for topic, key, value in records:
                producer.send(topic, json.serialize(value), key.encode())

    def run(made: StreamsBuilder) -> Streams:
        app = Streams(
            made.build(), bootstrap_servers=node.bootstrap, checkpoint=tmp_path / "c", spark=spark
        )
        app.process_available(400)
        return app

    with Admin(bootstrap_servers=node.bootstrap) as admin:
        for topic in ("numbers", "doubled", "counts", "people", "cities", "homes"):
            admin.create_topic(topic, partitions=2)
    send(*(("numbers", str(number), number) for number in range(10)))
    send(("people", "1", {"name": "Ann", "city": "x"}), ("cities", "x", "Xanadu"))
    run(builder("app"))
    send(("numbers", "10", 10), ("cities", "x", "Xi"))
    app = run(builder("app"))
    for rest in "012":
        answers = app.state_query(StateQueryRequest("by-rest", KeyQuery(rest))).partition_results
        (number,) = (one for one, answer in answers.items() if answer.result is not None)
        assert app.query_metadata_for_key("by-rest", rest) == KeyQueryMetadata(number)
    send(("numbers", "0", 0))
    lags = app.all_local_store_partition_lags()["by-rest"]
    assert [(lag.current_offset_position, lag.offset_lag) for lag in lags.values()] == [(11, 1)] * 2
    progress = app.progress()
    assert progress is not None
    assert (progress.lag, progress.state_rows > 0, progress.stream_time_ms > 0) == (0, True, True)
    store = app.store("by-rest")
    assert {key: found.value for key, found in store.all()} == {"0": 3, "1": 4, "2": 3}
    assert store.get("1").value == 4
    with pytest.raises(StreamsException, match=r"its stores: .*by-rest"):
        app.store("other")
    doubled = latest(node.bootstrap, "doubled", 10)
    assert doubled == {str(n): b"%d" % (2 * n) for n in range(1, 11)}
    counts = latest(node.bootstrap, "counts", 4)  # one update of each key for each micro-batch
    assert counts == {"0": (3).to_bytes(8), "1": (4).to_bytes(8), "2": (3).to_bytes(8)}
    assert latest(node.bootstrap, "homes", 2) == {"1": b'["Ann","Xi"]'}
    changed = builder("app")
    changed.stream("more").to("doubled")
    with pytest.raises(StreamsException, match=r"\+    Source: KSTREAM-SOURCE"):
        run(changed)
