"""The snippets of docs/spark.md and README.md are run in the session that the tests share.

They take some ten seconds, and `scripts/conformance` runs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ottla.spark
from ottla import Admin, Producer
from tests.documents.snippets import ADDRESS, snippets
from tests.spark.marks import SPARK_WARNINGS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.testing.cluster import Cluster

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    *SPARK_WARNINGS,
]
TOPICS = {"flights": 1, "events": 1, "changes": 1, "squares": 4, "totals": 1}


@pytest.fixture(autouse=True)
def topics(node: Cluster) -> None:
    """Create the topics that the page names, and records."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        for name, partitions in TOPICS.items():
            admin.create_topic(name, partitions, if_not_exists=True)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for number in range(6):
            producer.send("changes", str(number), f"shop-{number % 2}")


def pairs(spark: SparkSession, node: Cluster, topic: str) -> dict[str, str]:
    """Return the last value of each key of a topic."""
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", node.bootstrap)
    rows = reader.option("subscribe", topic).load().orderBy("offset")
    return dict(rows.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect())


@pytest.mark.parametrize(("page", "name"), [("README.md", "events"), ("docs/spark.md", "flights")])
def test_a_topic_as_a_stream(
    spark: SparkSession, node: Cluster, monkeypatch: pytest.MonkeyPatch, page: str, name: str
) -> None:
    """The first program reads a stream."""
    (text,) = (one.text for one in snippets(page) if "session()" in one.text)
    monkeypatch.setattr(ottla.spark, "session", lambda: spark)
    names: dict[str, Any] = {}
    exec(text.replace(ADDRESS, node.bootstrap), names)
    assert names[name].isStreaming
    assert names[name].columns[:2] == ["key", "value"]


def test_a_batch_write(spark: SparkSession, node: Cluster) -> None:
    """With a mode."""
    _, write, _, _ = snippets("docs/spark.md")
    frame = spark.range(5).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(id * id AS STRING) AS value"
    )
    exec(write.text, {"frame": frame, "server": {"kafka.bootstrap.servers": node.bootstrap}})
    assert pairs(spark, node, "squares") == {str(n): str(n * n) for n in range(5)}


def test_update_mode(spark: SparkSession, node: Cluster, tmp_path: Path) -> None:
    """Totals by foreachBatch."""
    _, _, update, _ = snippets("docs/spark.md")
    server = {"kafka.bootstrap.servers": node.bootstrap}
    reader = spark.readStream.format("ottla").options(**server, startingOffsets="earliest")
    changes = reader.option("subscribe", "changes").load().selectExpr("CAST(key AS STRING) AS key")
    totals = changes.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")
    exec(update.text, {"totals": totals, "server": server, "path": str(tmp_path)})
    (query,) = spark.streams.active
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert set(pairs(spark, node, "totals")) == {"shop-0", "shop-1"}


def test_a_join(spark: SparkSession) -> None:
    """An order with its payment, and one without."""
    _, _, _, join = snippets("docs/spark.md")
    from pyspark.sql.functions import expr

    orders = spark.sql("SELECT explode(array(1, 2)) AS order, now() AS ordered")
    payments = spark.sql("SELECT 1 AS payment, now() + INTERVAL 2 MINUTES AS paid")
    joined = eval(join.text, {"orders": orders, "payments": payments, "expr": expr})
    rows = joined.selectExpr("order", "paid IS NOT NULL").collect()
    assert sorted(map(tuple, rows)) == [(1, True), (2, False)]
