"""Topics of the quickstart: created, filled with events, read back.

Kafka: the console producer and consumer of its quickstart.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.topics import NewTopic
from ottla.clients.blocking import Admin, Consumer, Producer
from ottla.errors import KafkaError, OttlaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ottla.quickstart.flights import Flight

FLIGHTS = "flights"
AIRLINES = "airlines"
WEEKS = "carrier-weeks"
FLIGHT_PARTITIONS = 4
PROGRESS_EVERY = 2_000
READ_SECONDS = 30.0
KEEP_FOR_EVER = {"retention.ms": "-1"}
"""The events are of 2013, so a retention of a week would delete them."""


class FeedRecord(NamedTuple):
    """One consumed record."""

    key: str
    value: Any


def make_topics(bootstrap: str) -> None:
    """Recreate the three topics, so that a data directory can be reused."""
    requested = [
        NewTopic(FLIGHTS, FLIGHT_PARTITIONS, 1, KEEP_FOR_EVER),
        NewTopic(AIRLINES, 1, 1, {"cleanup.policy": "compact"}),
        NewTopic(WEEKS, 1, 1, KEEP_FOR_EVER),
    ]
    with Admin(bootstrap_servers=bootstrap) as admin:
        names = {one.name for one in requested}
        old = sorted(names & {topic.name for topic in admin.list_topics()})
        if old:
            _raise_first(admin.delete_topics(old))
        _raise_first(admin.create_topics(requested))


def _raise_first(outcomes: Mapping[Any, Any]) -> None:
    for name, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            raise OttlaError(f"topic {name!r}: {outcome.message}") from outcome


def first_event(bootstrap: str, flight: Flight) -> float:
    """Send one event, read it back, and return the time taken in seconds."""
    began = time.monotonic()
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        sent = producer.send_and_wait(
            FLIGHTS, flight.to_json(), flight.carrier.encode(), timestamp_ms=flight.time_ms
        )
    place = TopicPartition(FLIGHTS, sent.partition)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        consumer.seek(place, sent.offset)
        if not consumer.poll(timeout=READ_SECONDS):
            raise OttlaError("the first event was sent but could not be read back")
    return time.monotonic() - began


def send_airlines(bootstrap: str, airlines: dict[str, str]) -> None:
    """Send the table of airlines: key carrier, value name."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for carrier, name in airlines.items():
            producer.send(AIRLINES, name.encode(), carrier.encode())
        producer.flush()


def send_flights(
    bootstrap: str, flights: Sequence[Flight], progress: Callable[[int], None]
) -> None:
    """Send events in order, keyed by carrier, with their event time as timestamp."""
    with Producer(bootstrap_servers=bootstrap, batch_size=131_072, linger_ms=20) as producer:
        last = None
        for count, flight in enumerate(flights, 1):
            last = producer.send(
                FLIGHTS, flight.to_json(), flight.carrier.encode(), timestamp_ms=flight.time_ms
            )
            if count % PROGRESS_EVERY == 0:
                progress(count)
        producer.flush()
        if last is not None:
            last.result(READ_SECONDS)
    progress(len(flights))


def send_marker(bootstrap: str, value: bytes) -> None:
    """Send a record without a flight to every partition: it marks the end of the year."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for partition in range(FLIGHT_PARTITIONS):
            producer.send(FLIGHTS, value, partition=partition)
        producer.flush()


def read_all(bootstrap: str, topic: str) -> Iterator[FeedRecord]:
    """Yield all records of a topic; raises OttlaError if they do not arrive."""
    with Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",  # no records of a job that was killed
    ) as consumer:
        places = [TopicPartition(topic, one.partition) for one in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        deadline = time.monotonic() + READ_SECONDS
        while any(consumer.position(place) < ends[place] for place in places):
            for record in consumer.poll(timeout=1.0, max_records=10_000):
                yield FeedRecord(record.key.decode(), record.value)
                deadline = time.monotonic() + READ_SECONDS
            if time.monotonic() > deadline:
                raise OttlaError(f"topic {topic!r} could not be read to its end")


def decode(record: FeedRecord) -> dict[str, Any]:
    """Return a JSON record's value."""
    value: dict[str, Any] = json.loads(record.value)
    return value
