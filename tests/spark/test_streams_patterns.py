"""`ottla.streams` on Spark: sources of patterns, and topics that appear later."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from ottla import Admin, Producer, TopicPartition
from ottla.streams import (
    Consumed,
    KeyQuery,
    Materialized,
    Produced,
    Serdes,
    StateQueryRequest,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    expr,
)
from tests.spark.marks import SPARK_WARNINGS
from tests.spark.streams_topics import written
from tests.waits import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.streams import Topology
    from ottla.testing.cluster import Cluster

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.spark,
    pytest.mark.timeout(1500),
    *SPARK_WARNINGS,
]
JSON = Serdes.json(schema="n INT")
WHOLE = Produced(value=Serdes.json())
FINISH_S = 300


def is_finished(checkpoint: Path) -> bool:
    """Whether Spark has committed the last micro-batch that it planned."""
    planned, committed = (
        max(int(it.name) for it in checkpoint.rglob(f"{log}/*") if it.name.isdecimal())
        for log in ("offsets", "commits")
    )
    return planned == committed


def application() -> Topology:
    """Return the topology: copies of one pattern, counts by value and by key of two, a name."""
    builder = StreamsBuilder(StreamsConfig("patterns"))
    numbers = builder.stream(re.compile("numbers-.*"), consumed=Consumed(value=JSON))
    numbers.filter(expr("value.n > 0")).to("copies")
    by_value = numbers.group_by(lambda _, value: str(value["n"]))
    by_value.count(materialized=Materialized("by-value")).to_stream().to("counts", WHOLE)
    keyed = builder.stream(re.compile("KEYED-.*", re.IGNORECASE)).group_by_key()
    keyed.count(materialized=Materialized("by-key", max_entries=1)).to_stream().to("by-key", WHOLE)
    builder.stream("named").to("copies")
    return builder.build()


def test_topics_that_appear_later_are_read_from_their_beginning(
    spark: SparkSession, node: Cluster, tmp_path: Path
) -> None:
    """Over one checkpoint and within a run; state has no more tasks than at the start."""

    def create(topic: str, partitions: int, *numbers: int) -> None:
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            admin.create_topic(topic, partitions=partitions)
        with Producer(bootstrap_servers=node.bootstrap) as producer:
            for number in numbers:
                value = JSON.serialize({"n": number})
                producer.send(topic, value, b"k", partition=partitions - 1)

    def app() -> Streams:
        servers = node.bootstrap
        return Streams(application(), bootstrap_servers=servers, checkpoint=tmp_path, spark=spark)

    def wait_for_counts(counts: dict[str, list[Any]]) -> None:
        wait_for(lambda: written(node.bootstrap, "counts") == counts, FINISH_S)

    for topic in ("copies", "counts", "by-key"):
        create(topic, 2)
    create("named", 1, 7)
    create("numbers-a", 1, 1, 0)
    create("keyed-a", 2, 1)
    app().process_available(FINISH_S)
    copies = [{"n": 7}, {"n": 1}]
    assert sorted(map(str, written(node.bootstrap, "copies")["k"])) == sorted(map(str, copies))
    create("numbers-b", 3, 1, 2)  # more partitions than there were tasks
    create("keyed-b", 2, 1)
    app().process_available(FINISH_S)
    wait_for_counts({"0": [1], "1": [1, 2], "2": [1]})
    assert written(node.bootstrap, "by-key") == {"k": [1, 2]}
    found = app().state_query(StateQueryRequest("by-key", KeyQuery("k")))
    assert [one.result for one in found.partition_results.values()] == [None, 2]
    assert found.position[TopicPartition("keyed-b", 1)] == 0
    running = app().start()
    create("numbers-c", 2, 2)
    wait_for_counts({"0": [1], "1": [1, 2], "2": [1, 2]})
    create("keyed-c", 3, 1)
    words = r"topic 'keyed-c' has 3 partitions, where the query may read topics of 1 to 2"
    with pytest.raises(StreamingQueryException, match=words):
        running.await_termination(FINISH_S)
    with pytest.raises(StreamsException, match=r"1 tasks: 2, .* make sub-topology: 1 tasks: 3"):
        app().start()
    assert written(node.bootstrap, "by-key") == {"k": [1, 2]}


def test_an_application_may_start_before_the_topics_of_a_pattern(
    spark: SparkSession, node: Cluster, tmp_path: Path
) -> None:
    """It waits, over restarts, and finds a topic while it runs; its group is an ordinary one."""
    builder = StreamsBuilder(StreamsConfig("early"))
    counts = builder.stream(re.compile("early-in-.*")).group_by_key().count()
    counts.to_stream().to("early-out", WHOLE)

    def app() -> Streams:
        servers = node.bootstrap
        return Streams(builder.build(), bootstrap_servers=servers, checkpoint=tmp_path, spark=spark)

    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("early-out", partitions=2)
    app().process_available(FINISH_S)
    running = app().start()
    assert not running.await_termination(5)
    assert running.state.name == "RUNNING"
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("early-in-a", partitions=3)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        producer.send("early-in-a", b"1", b"k", partition=2)
    wait_for(lambda: written(node.bootstrap, "early-out"), FINISH_S)
    running.stop()
    assert written(node.bootstrap, "early-out") == {"k": [1]}
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        producer.send("early-in-a", b"1", b"k", partition=2)
    app().process_available(FINISH_S)
    assert written(node.bootstrap, "early-out") == {"k": [1, 2]}
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        offsets = admin.list_group_offsets("early")
    assert {place: one.offset for place, one in offsets.items() if one is not None} == {
        TopicPartition("early-in-a", 0): 0,
        TopicPartition("early-in-a", 1): 0,
        TopicPartition("early-in-a", 2): 2,
    }


def test_topics_of_a_pattern_may_be_deleted(
    spark: SparkSession, node: Cluster, tmp_path: Path
) -> None:
    """As in Kafka Streams the application goes on; one that is created again is a new topic."""
    builder = StreamsBuilder(StreamsConfig("gone"))
    counts = builder.stream(re.compile("gone-in-.*")).group_by_key().count()
    counts.to_stream().to("gone-out", WHOLE)

    def app() -> Streams:
        servers = node.bootstrap
        return Streams(builder.build(), bootstrap_servers=servers, checkpoint=tmp_path, spark=spark)

    def create(*topics: str) -> None:
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            for topic in topics:
                admin.create_topic(topic, partitions=2)

    def delete(topic: str) -> None:
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            admin.delete_topics([topic])

    def send(*topics: str) -> None:
        with Producer(bootstrap_servers=node.bootstrap) as producer:
            for topic in topics:
                producer.send(topic, b"1", b"k", partition=1)

    def wait_for_numbers(count: int) -> None:
        expected = {"k": list(range(1, count + 1))}
        wait_for(lambda: written(node.bootstrap, "gone-out") == expected, FINISH_S)

    create("gone-out", "gone-in-a", "gone-in-b")
    send("gone-in-a", "gone-in-b")
    app().process_available(150)
    wait_for_numbers(2)
    delete("gone-in-a")  # the first topic, whose offsets had the decision on the micro-batch
    send("gone-in-b")
    app().process_available(150)
    wait_for_numbers(3)
    ((_, lags),) = app().all_local_store_partition_lags().items()
    assert [one.offset_lag for one in lags.values()] == [0, 0]
    running = app().start()
    create("gone-in-a")
    send("gone-in-a")
    wait_for_numbers(4)
    delete("gone-in-b")
    time.sleep(3)  # the query looks for topics every two seconds
    assert running.state.name == "RUNNING"
    send("gone-in-a")
    wait_for_numbers(5)
    wait_for(lambda: is_finished(tmp_path), FINISH_S)  # or a part of the old topic comes first
    running.stop()
    delete("gone-in-a")
    create("gone-in-a", "gone-in-c")
    send("gone-in-a", "gone-in-c")
    with pytest.raises(StreamingQueryException, match="has no decision on one"):
        app().process_available(150)  # no topic is left that had one
