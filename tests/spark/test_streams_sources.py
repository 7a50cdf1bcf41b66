"""`ottla.streams` on Spark: starts by source, stores of other topics, partitioners, queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from ottla import Admin, Producer, TopicPartition
from ottla.cli.commands.streams import streams
from ottla.streams import (
    AutoOffsetReset,
    Consumed,
    Materialized,
    Processor,
    Produced,
    Record,
    Serdes,
    Stores,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    TableJoined,
)
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
TEXT, JSON = Serdes.string(), Serdes.json()
TOPICS = ("fresh", "people", "cities", "facts", "questions", "out", "homes", "questions-answered")


class Filling(Processor):
    """Keeps the latest value of each key."""

    def process(self, record: Record) -> None:
        """Store a record."""
        self.context.get_state_store("facts").put(record.key, record.value)


class Answering(Processor):
    """Answers with a fact and the number of the task."""

    def process(self, record: Record) -> None:
        """Look a fact up."""
        fact = self.context.get_state_store("facts").get(record.key)
        self.context.forward(record.with_value([fact, str(self.context.task_id())]))


def application(policy: AutoOffsetReset) -> Any:
    """Return the topology: a stream with a policy, a foreign-key join, a read-only store.

    The rows of cities lie in partition 1, whatever their key.
    """
    builder = StreamsBuilder(StreamsConfig("sources"))
    fresh = builder.stream("fresh", consumed=Consumed(offset_reset_policy=policy))
    fresh.to_table(materialized=Materialized("seen")).to_stream().to("out")
    joined = TableJoined(other_partitioner=lambda _topic, _key, _value, _count: 1)
    people, cities = builder.table("people"), builder.table("cities")
    people.join(
        cities, lambda one, city: [one, city], foreign_key=lambda _, v: v, table_joined=joined
    ).to_stream().to("homes")
    answers = builder.stream("questions").process(Answering, name="answering")
    answers.to(
        lambda _key, _value, context: f"{context.topic}-answered",
        Produced(partitioner=lambda _topic, _key, _value, count: count - 1),
    )
    topology = builder.build()
    topology.add_read_only_state_store(
        Stores.key_value("facts", TEXT, JSON),
        "facts",
        Filling,
        source="facts-source",
        processor="facts-processor",
    )
    return topology.connect_processor_and_state_stores("answering", "facts")


def test_sources_start_where_they_say(
    spark: SparkSession, node: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy counts for a new checkpoint only, and may change; the tool reads a range."""
    checkpoint = tmp_path / "c"

    def send(topic: str, key: str, value: Any, partition: int | None = None) -> None:
        with Producer(bootstrap_servers=node.bootstrap) as producer:
            producer.send(topic, JSON.serialize(value), key.encode(), partition=partition)

    def run(policy: AutoOffsetReset) -> None:
        app = Streams(
            application(policy),
            bootstrap_servers=node.bootstrap,
            checkpoint=checkpoint,
            spark=spark,
        )
        app.process_available(400)

    with Admin(bootstrap_servers=node.bootstrap) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, partitions=2)
    send("fresh", "a", "before the start")
    send("facts", "k", "a fact", 1)
    send("cities", "x", "Xanadu", 1)
    send("people", "ann", "x")
    send("questions", "k", "?", 1)
    run(AutoOffsetReset.latest())
    for key in ("b", "c", "d"):
        send("fresh", key, f"{key} is new")
    run(AutoOffsetReset.none())  # nothing for an old checkpoint
    assert written(node.bootstrap, "out") == {key: [f"{key} is new"] for key in ("b", "c", "d")}
    assert written(node.bootstrap, "homes") == {"ann": [["x", "Xanadu"]]}
    ((fact, task),) = written(node.bootstrap, "questions-answered")["k"]
    assert (fact, task.endswith("_1")) == ("a fact", True)
    program = tmp_path / "app.py"
    program.write_text(
        "from ottla.streams import AutoOffsetReset\n"
        "from tests.spark.test_streams_sources import application\n"
        "topology = application(AutoOffsetReset.earliest())\n"
    )
    monkeypatch.setattr("ottla.spark.jvm.local_session.session", lambda *_, **__: spark)
    monkeypatch.setattr("ottla.spark.jvm.local_session.stop", lambda _: None)
    command = ["query", str(program), "--checkpoint", str(checkpoint), "--store", "seen"]
    found = CliRunner().invoke(streams, [*command, "--from", "b", "--to", "c", "--reverse"])
    assert found.output == '"c"\t"c is new"\n"b"\t"b is new"\n'
    assert CliRunner().invoke(streams, [*command, "--count"]).output == "3\n"
    found = CliRunner().invoke(streams, [*command, "--from-time", "1"])
    assert "a key-value store has no windows" in found.output


def test_a_source_without_a_start_needs_committed_offsets(
    spark: SparkSession, node: Cluster, tmp_path: Path
) -> None:
    """It goes on from them on a new checkpoint, and is refused where there are none."""
    builder = StreamsBuilder(StreamsConfig("committed"))
    consumed = Consumed(offset_reset_policy=AutoOffsetReset.none())
    builder.stream("n-in", consumed=consumed).to("n-out")
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        for topic in ("n-in", "n-out"):
            admin.create_topic(topic, partitions=2)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for number in range(4):
            producer.send("n-in", b"%d" % number, b"%d" % number, partition=0)
    app = Streams(
        builder.build(), bootstrap_servers=node.bootstrap, checkpoint=tmp_path, spark=spark
    )
    with pytest.raises(StreamsException, match=r"No valid committed offset found for input"):
        app.process_available(400)
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        places = {TopicPartition("n-in", 0): 2, TopicPartition("n-in", 1): 0}
        admin.alter_group_offsets("committed", places)
    app.process_available(400)
    assert written(node.bootstrap, "n-out") == {"2": [2], "3": [3]}
