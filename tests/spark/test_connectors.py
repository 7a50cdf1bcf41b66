"""Connectors as queries of Spark, on a worker and a node."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pytest

from examples import connect_pipeline
from ottla import Admin, Consumer, TopicPartition
from ottla.connect.generator.source import Generator
from ottla.connect.spark.formats import GrowingTable
from ottla.streams import Streams
from ottla.testing.connect import collect
from tests.connect.test_simple import Numbers
from tests.connect.test_standalone import Rest
from tests.spark.marks import SPARK_WARNINGS
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.testing.cluster import Cluster

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600), *SPARK_WARNINGS]
LIMIT_S = 240
_JSON = "org.apache.kafka.connect.json.JsonConverter"
PLAIN = {
    "key.converter": _JSON,
    "key.converter.schemas.enable": "false",
    "value.converter": _JSON,
    "value.converter.schemas.enable": "false",
}


class Worker:
    """A standalone worker whose connectors run on the session of the tests."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        """Start it."""
        self.is_closed = False
        self.rest = Rest(
            bootstrap,
            directory,
            {
                "ottla.spark.checkpoint.dir": str(directory / "checkpoints"),
                "ottla.spark.trigger.ms": "500",
                "offset.storage.topic": f"offsets-{directory.name}",
                "ottla.python.modules": "tests.spark.connector_worker",
            },
        )

    def put(self, name: str, **config: str) -> None:
        """Create a connector or change it."""
        status, answer = self.rest.call("PUT", f"/connectors/{name}/config", {**PLAIN, **config})
        assert status in (200, 201), answer

    def error(self, name: str) -> str | None:
        """Return why the query has failed."""
        _, status = self.rest.call("GET", f"/connectors/{name}/status")
        tasks = status.get("tasks", ())  # none before the first report
        return next((it["trace"] for it in tasks if it["state"] == "FAILED"), None)

    def wait(self, name: str, condition: Any) -> None:
        """Wait for what a connector does."""

        def holds() -> bool:
            error = self.error(name)
            assert error is None, error
            time.sleep(0.2)  # a look starts a consumer, or a query
            return bool(condition())

        wait_for(holds, LIMIT_S)

    def close(self) -> None:
        """Stop it, once."""
        if not self.is_closed:
            self.is_closed = True
            self.rest.close()


@pytest.fixture(name="worker")
def _worker(spark: SparkSession, node: Cluster, tmp_path: Path) -> Iterator[Worker]:
    del spark
    worker = Worker(node.bootstrap, tmp_path)
    yield worker
    worker.close()


def values(bootstrap: str, topic: str) -> list[Any]:
    """Return the committed values of a topic, of those transactions that have ended."""
    with Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        partitions = [
            TopicPartition(topic, it) for it in range(len(consumer.partitions_for(topic)))
        ]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: list[Any] = []
        while any(consumer.position(it) < ends[it] for it in partitions):
            found += [json.loads(it.value) for it in consumer.poll(0.2)]
    return found


def test_a_source_in_python_goes_on_where_it_was(
    spark: SparkSession, node: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two partitions in two tasks; offsets come from the topic after a restart."""
    del spark
    points = [EntryPoint("numbers", f"{Numbers.__module__}:Numbers", "ottla.connectors")]
    monkeypatch.setattr("ottla.connect.plugins.entry_points", lambda group: points)
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("counted", partitions=2)
    config = {
        "connector.class": "numbers",
        "topic": "counted",
        "tasks.max": "2",
        "ottla.runtime": "spark",
        "transforms": "Where",
        "transforms.Where.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.Where.static.field": "source",
        "transforms.Where.static.value": "spark",
    }
    for count in (1000, 2000):
        worker = Worker(node.bootstrap, tmp_path)
        worker.put("n", **config, count=str(count))
        worker.wait("n", lambda: len(values(node.bootstrap, "counted")) >= count)  # noqa: B023
        worker.close()
        found = values(node.bootstrap, "counted")
        assert sorted(it["n"] for it in found) == list(range(count))
        assert {it["source"] for it in found} == {"spark"}


def test_made_up_records_go_on_with_their_sequence(
    spark: SparkSession, node: Cluster, tmp_path: Path
) -> None:
    """The generator's two tasks, with a restart: the records of an uninterrupted run, each once."""
    del spark
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("made", partitions=2)
    config = {
        "connector.class": "Datagen",
        "kafka.topic": "made",
        "quickstart": "orders",
        "max.interval": "0",
        "tasks.max": "2",
        "ottla.runtime": "spark",
    }
    for count in (300, 700):
        settings = config | {"iterations": str(count)}
        worker = Worker(node.bootstrap, tmp_path)
        worker.put("g", **settings)
        worker.wait("g", lambda: len(values(node.bootstrap, "made")) >= 2 * count)  # noqa: B023
        worker.close()
        expected = [it.value for it in collect(Generator, settings, limit=2 * count + 1)]
        names = ("orderid", "itemid", "orderunits")
        assert sorted(
            tuple(it[name] for name in names) for it in values(node.bootstrap, "made")
        ) == (sorted(tuple(it[name] for name in names) for it in expected))


def test_a_table_is_read_by_its_growing_column(
    spark: SparkSession, node: Cluster, worker: Worker, tmp_path: Path
) -> None:
    """Rows of a database by JDBC, whose driver comes with Spark; a restart doubles none.

    Rows without a value of the column are passed over, a whole batch of them, too.
    """
    options = {
        "url": f"jdbc:derby:{tmp_path / 'db'};create=true",
        "driver": "org.apache.derby.jdbc.EmbeddedDriver",
        "dbtable": "orders",
    }

    def insert(start: int, end: int) -> None:
        frame = spark.range(start, end).selectExpr("id AS ID", "concat('item ', id) AS ITEM")
        frame.write.format("jdbc").options(**options).mode("append").save()

    config = {
        "connector.class": "SparkFormatSource",
        "format": "jdbc",
        "topic": "orders",
        "incrementing.column.name": "ID",
        "poll.interval.ms": "500",
        "batch.max.rows": "40",
        **{f"spark.option.{name}": value for name, value in options.items()},
    }
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("orders", partitions=2)
    without = spark.range(40).selectExpr("CAST(NULL AS BIGINT) AS ID", "'never read' AS ITEM")
    without.write.format("jdbc").options(**options).mode("append").save()
    insert(0, 100)
    worker.put("jdbc", **config)
    worker.wait("jdbc", lambda: len(values(node.bootstrap, "orders")) >= 100)
    worker.close()
    insert(100, 150)
    again = Worker(node.bootstrap, tmp_path)
    again.put("jdbc", **config)
    again.wait("jdbc", lambda: len(values(node.bootstrap, "orders")) >= 150)
    again.close()
    found = sorted(values(node.bootstrap, "orders"), key=lambda it: it["ID"])
    assert found == [{"ID": it, "ITEM": f"item {it}"} for it in range(150)]


def test_files_that_come_later_have_new_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A growing column of files finds them without a restart."""
    path = str(tmp_path / "files")
    spark.range(3).write.parquet(path)
    config = {"format": "parquet", "topic": "t", "incrementing.column.name": "id"}
    table = GrowingTable(spark, config | {"spark.option.path": path})
    assert table.end_after(None) == 2
    assert table.end_after(2) is None
    spark.range(3, 5).write.mode("append").parquet(path)
    assert table.end_after(2) == 4
    assert sorted(it.id for it in table.rows(2, 4).collect()) == [3, 4]


def test_a_pause_ends_a_read_by_the_growing_column(
    spark: SparkSession, node: Cluster, worker: Worker, tmp_path: Path
) -> None:
    """It does not wait for the batch, which comes once after a resume."""
    options = {
        "url": f"jdbc:derby:{tmp_path / 'db'};create=true",
        "driver": "org.apache.derby.jdbc.EmbeddedDriver",
        "dbtable": "slow",
    }
    gate = tmp_path / "gate"
    frame = spark.range(3).selectExpr("id AS ID", f"'{gate}' AS PATH")
    frame.write.format("jdbc").options(**options).mode("append").save()
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("slow", partitions=1)
    worker.put(
        "slow",
        **{
            "connector.class": "SparkFormatSource",
            "format": "jdbc",
            "topic": "slow",
            "incrementing.column.name": "ID",
            "poll.interval.ms": "500",
            "transforms": "hold",
            "transforms.hold.type": "ottla.connect.Python",
            "transforms.hold.function": "tests.spark.connector_worker.hold",
            **{f"spark.option.{name}": value for name, value in options.items()},
        },
    )
    worker.wait("slow", lambda: spark.streams.active)

    def is_paused() -> bool:
        _, status = worker.rest.call("GET", "/connectors/slow/status")
        return [it["state"] for it in status["tasks"]] == ["PAUSED"]

    assert worker.rest.call("PUT", "/connectors/slow/pause")[0] == 202
    worker.wait("slow", is_paused)
    gate.touch()
    assert values(node.bootstrap, "slow") == []
    assert worker.rest.call("PUT", "/connectors/slow/resume")[0] == 202
    worker.wait("slow", lambda: len(values(node.bootstrap, "slow")) >= 3)
    assert sorted(it["ID"] for it in values(node.bootstrap, "slow")) == [0, 1, 2]


def test_files_to_a_topic_to_files(
    spark: SparkSession, node: Cluster, worker: Worker, tmp_path: Path
) -> None:
    """A directory of CSV is followed; the topic becomes Parquet."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("1,one\n2,two\n")
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("named", partitions=1)
    worker.put(
        "csv",
        **{
            "connector.class": "SparkFormatSource",
            "format": "csv",
            "schema": "id BIGINT, name STRING",
            "topic": "named",
            "spark.option.path": str(tmp_path / "in"),
        },
    )
    worker.put(
        "parquet",
        **{
            "connector.class": "SparkFormatSink",
            "format": "parquet",
            "schema": "id BIGINT, name STRING",
            "topics": "named",
            "spark.option.path": str(tmp_path / "out"),
        },
    )
    worker.wait("csv", lambda: len(values(node.bootstrap, "named")) >= 2)
    (tmp_path / "in" / "2.csv").write_text("3,three\n")

    def rows() -> list[tuple[int, str]]:
        if not (tmp_path / "out" / "_spark_metadata" / "0").exists():
            return []
        frame = spark.read.parquet(str(tmp_path / "out"))
        return sorted((it.id, it.name) for it in frame.collect())

    worker.wait("parquet", lambda: len(rows()) >= 3)
    worker.wait("csv", lambda: True)
    assert rows() == [(1, "one"), (2, "two"), (3, "three")]


def test_from_a_database_to_windows_to_files(
    spark: SparkSession, node: Cluster, worker: Worker, tmp_path: Path
) -> None:
    """The pipeline of the examples: SQLite, a topic, hours on Spark, Parquet."""
    hour_ms = 3_600_000
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY NOT NULL, item TEXT, at_ms INT)"
        )
        orders = [(it, ("tea", "milk")[it % 2], it * hour_ms // 10) for it in range(1, 31)]
        database.executemany("INSERT INTO orders VALUES (?, ?, ?)", orders)
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        for topic in ("shop-orders", "sales"):
            admin.create_topic(topic, partitions=1)
    worker.put("database", **connect_pipeline.from_database(f"jdbc:sqlite:{tmp_path / 'shop.db'}"))
    worker.wait("database", lambda: len(values(node.bootstrap, "shop-orders")) >= len(orders))
    app = Streams(
        connect_pipeline.builder.build(),
        bootstrap_servers=node.bootstrap,
        checkpoint=tmp_path / "windows",
        spark=spark,
    )
    app.process_available(300)
    worker.put("files", **connect_pipeline.to_files(str(tmp_path / "out")))
    sales = values(node.bootstrap, "sales")
    assert {it["hour_ms"] for it in sales} == {0, hour_ms, 2 * hour_ms}  # the fourth is open

    def rows() -> list[tuple[str, int, int]]:
        if not (tmp_path / "out" / "_spark_metadata" / "0").exists():
            return []
        frame = spark.read.parquet(str(tmp_path / "out"))
        return sorted((it.item, it.hour_ms, it.orders) for it in frame.collect())

    worker.wait("files", lambda: len(rows()) >= len(sales))
    counted = Counter((item, at_ms // hour_ms * hour_ms) for _, item, at_ms in orders)
    closed = {key: it for key, it in counted.items() if key[1] < 3 * hour_ms}
    assert rows() == sorted((*key, it) for key, it in closed.items())
