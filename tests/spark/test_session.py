"""The source and the sink inside Spark: found by name, batch and streaming, restarts, errors."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

import pyspark_ottla
from ottla.clients.admin.topics import NewTopic
from ottla.clients.blocking import Admin, Producer
from ottla.spark.jvm.launching import find_java
from ottla.spark.jvm.local_session import session
from tests.spark.marks import SPARK_WARNINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.testing.cluster import Cluster

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    *SPARK_WARNINGS,
]
SECONDS = 300


def make_topics(node: Cluster, *names: str) -> None:
    """Create topics of two partitions."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2, 1) for name in names])


def produce(node: Cluster, topic: str, numbers: range) -> None:
    """Send numbers as values, keyed by themselves."""
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, b"k%d" % number)
        producer.flush()


def batch(spark: SparkSession, node: Cluster, topic: str, **options: str) -> DataFrame:
    """Return the frame of a topic."""
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", node.bootstrap)
    return reader.options(**options).option("subscribe", topic).load()


def copying(
    spark: SparkSession,
    node: Cluster,
    source: str,
    target: str,
    checkpoint: Path,
    **options: str,
) -> StreamingQuery:
    """Start a query that copies what is there now."""
    return (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", node.bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
        .selectExpr("key", "value", "headers" if "includeHeaders" in options else "timestamp")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", node.bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def finish(query: StreamingQuery) -> list[Any]:
    """Wait for the query's end and return its progress reports."""
    assert query.awaitTermination(SECONDS)
    assert query.exception() is None
    return list(query.recentProgress)


def numbers_in(frame: DataFrame) -> list[int]:
    """Return the numbers in a frame's values, sorted."""
    return sorted(int(row[0]) for row in frame.selectExpr("CAST(value AS STRING)").collect())


def test_a_topic_is_a_frame(spark: SparkSession, node: Cluster) -> None:
    """The connector's columns and types, without registering anything."""
    make_topics(node, "frame")
    produce(node, "frame", range(100))
    frame = batch(spark, node, "frame", includeHeaders="true")
    assert [f"{field.name} {field.dataType.simpleString()}" for field in frame.schema] == [
        "key binary",
        "value binary",
        "topic string",
        "partition int",
        "offset bigint",
        "timestamp timestamp",
        "timestampType int",
        "headers array<struct<key:string,value:binary>>",
    ]
    assert numbers_in(frame) == list(range(100))
    assert frame.where("partition = 1 AND offset < 5").count() == 5
    some = spark.read.schema("value binary").format("ottla")
    some = some.option("kafka.bootstrap.servers", node.bootstrap).option("subscribe", "frame")
    assert some.load().columns == ["value"]


def test_a_frame_becomes_a_topic(spark: SparkSession, node: Cluster) -> None:
    """A batch write, strings and bytes, and the word for a frame without value."""
    make_topics(node, "written")
    options = {"kafka.bootstrap.servers": node.bootstrap, "topic": "written"}
    frame = spark.range(1000).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    frame.write.format("ottla").options(**options).mode("append").save()
    assert numbers_in(batch(spark, node, "written")) == list(range(1000))
    wrong = frame.withColumnRenamed("value", "vaule")
    with pytest.raises(Exception, match="rename 'vaule'"):
        wrong.write.format("ottla").options(**options).mode("append").save()
    with pytest.raises(Exception, match="use mode"):
        frame.write.format("ottla").options(**options).mode("overwrite").save()


def test_a_stream_goes_on_where_it_was(spark: SparkSession, node: Cluster, tmp_path: Path) -> None:
    """Micro-batches of limited size, then a restart that reads only what is new."""
    make_topics(node, "source", "target")
    produce(node, "source", range(100))
    reports = finish(
        copying(spark, node, "source", "target", tmp_path / "c", maxOffsetsPerTrigger="40")
    )
    sizes = [report.numInputRows for report in reports if report.numInputRows]
    assert sum(sizes) == 100
    assert len(sizes) == 3
    assert max(sizes) <= 40
    produce(node, "source", range(100, 150))
    reports = finish(copying(spark, node, "source", "target", tmp_path / "c"))
    assert sum(report.numInputRows for report in reports) == 50
    assert numbers_in(batch(spark, node, "target")) == list(range(150))


def test_a_recreated_topic_ends_the_query(
    spark: SparkSession, node: Cluster, tmp_path: Path
) -> None:
    """A checkpoint of the old topic does not silently read the new one."""
    make_topics(node, "again", "again-copy")
    produce(node, "again", range(10))
    finish(copying(spark, node, "again", "again-copy", tmp_path / "c"))
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.delete_topics(["again"])
    make_topics(node, "again")
    produce(node, "again", range(30))
    query = copying(spark, node, "again", "again-copy", tmp_path / "c")
    with pytest.raises(Exception, match="was deleted and created again"):
        query.awaitTermination(SECONDS)


def test_a_query_outlives_a_restart_of_the_broker(
    spark: SparkSession, node: Cluster, tmp_path: Path
) -> None:
    """A running query waits for its broker and misses nothing."""
    make_topics(node, "alive", "alive-copy")
    produce(node, "alive", range(50))
    query = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", node.bootstrap)
        .option("subscribe", "alive")
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", node.bootstrap)
        .option("topic", "alive-copy")
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    try:
        query.processAllAvailable()
        node.restart()
        produce(node, "alive", range(50, 100))
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
    assert sorted(set(numbers_in(batch(spark, node, "alive-copy")))) == list(range(100))


def test_errors_name_the_option(spark: SparkSession, node: Cluster, tmp_path: Path) -> None:
    """Mistakes that schema, plan and writer find end in our sentence, without a traceback."""
    make_topics(node, "named")
    with pytest.raises(Exception, match="did you mean 'startingOffsets'") as mistyped:
        batch(spark, node, "named", startingOfsets="earliest")
    with pytest.raises(Exception, match="must name exactly the partitions") as planned:
        batch(spark, node, "named", startingOffsets='{"named":{"7":0}}').count()
    with pytest.raises(Exception, match=r"option kafka\.fetch\.min\.bytes") as setting:
        batch(spark, node, "named", **{"kafka.fetch.min.bytes": "x"})
    frame = spark.range(1).selectExpr("CAST(id AS STRING) AS value").write.format("ottla")
    frame = frame.option("kafka.bootstrap.servers", node.bootstrap)
    create = (
        f"there is no topic 'nowhere'; create it: ottla topics --bootstrap-server {node.bootstrap}"
    )
    with pytest.raises(Exception, match=create) as target:
        frame.option("kafka.allow.auto.create.topics", "false").option("topic", "nowhere").mode(
            "append"
        ).save()
    query = copying(spark, node, "named", "named", tmp_path / "c", endingOffsets="latest")
    with pytest.raises(Exception, match="endingOffsets") as streaming:
        query.awaitTermination(SECONDS)
    assert "UnboundLocalError" not in str(streaming.value)
    for raised in (mistyped, planned, setting, target, streaming):
        assert "Traceback" not in str(raised.value)


def test_a_running_session_keeps_its_settings(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that it takes are set, the others are named."""
    config = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "9g"}
    assert session(config=config) is spark
    (line,) = [one.message for one in caplog.records if "without effect" in one.message]
    assert "spark.driver.memory=9g" in line
    assert "shuffle" not in line
    assert "spark.master" not in line


def test_a_write_needs_a_mode(spark: SparkSession, node: Cluster) -> None:
    """Spark refuses Python data sources without one, and names the mode that works."""
    frame = spark.range(1).selectExpr("CAST(id AS STRING) AS value").write.format("ottla")
    frame = frame.options(**{"kafka.bootstrap.servers": node.bootstrap, "topic": "written"})
    with pytest.raises(Exception, match='use either the "Append"'):
        frame.save()


PLAIN_SESSION = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
builder = builder.config("spark.driver.host", "127.0.0.1")
spark = builder.getOrCreate()
server = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "flights"}
print(spark.read.format("ottla").options(**server).load().columns[:2])
"""


def test_a_plain_session_needs_no_path(tmp_path: Path) -> None:
    """A virtual environment that is not on PATH: the JVM looks for sources with its Python."""
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    root = Path(pyspark_ottla.__file__).parent
    directories = f"{Path(pyspark.__file__).parent.parent}\n{root.parent}\n"
    started = (root / "pyspark_ottla.pth").read_text("utf-8")  # as the wheel installs it
    (packages / "ottla.pth").write_text(directories + started, "utf-8")
    java = find_java().path
    environment = {"HOME": str(tmp_path), "JAVA_HOME": str(java.resolve().parent.parent)}
    done = subprocess.run(
        [tmp_path / "venv" / "bin" / "python", "-c", PLAIN_SESSION],
        env={**environment, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.stdout == "['key', 'value']\n", done.stderr[-2000:]


SILENCED_SESSION = """
from ottla.spark.jvm.local_session import session, silence, stop

spark = session("ottla tests", class_cache=False, fast_start=True)
Failure = spark._jvm.java.lang.Exception
Failure("told").printStackTrace()
silence(spark)
Failure("of the stop").printStackTrace()
stop(spark)
"""


def test_a_silenced_session_writes_nothing(tmp_path: Path) -> None:
    """Not even what Java prints past the log: exceptions that end a thread."""
    done = subprocess.run(
        [sys.executable, "-c", SILENCED_SESSION],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert "Exception: told" in done.stderr
    assert "of the stop" not in done.stderr
