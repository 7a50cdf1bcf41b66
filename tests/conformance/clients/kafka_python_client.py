"""kafka-python as a command; `stock.py` says what the commands are.

STOCK_API_VERSION=2.1 pins the protocol to what that release of Kafka spoke.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaConnectionError
from kafka.structs import OffsetAndMetadata

from tests.conformance.clients.commands import key_of, main, say, stop_event, timestamp_of, value_of

if TYPE_CHECKING:
    from collections.abc import Callable

RECONNECTING = {"reconnect_backoff_max_ms": 500}


def _pinned() -> dict[str, Any]:
    version = os.environ.get("STOCK_API_VERSION")
    numbers = version and tuple(int(part) for part in version.split("."))
    return {"api_version": numbers} if numbers else {}


def produce(arguments: list[str]) -> None:
    """Send records with each codec in turn; say each acknowledgement."""
    bootstrap, topic, count, codecs, first, pause_ms = arguments
    number = int(first)
    for codec in codecs.split(","):
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
            **RECONNECTING,
            **_pinned(),
        )
        sent = []
        for one in range(number, number + int(count)):
            value, key, timestamp_ms = value_of(one), key_of(one), timestamp_of(one)
            future = producer.send(topic, value=value, key=key, timestamp_ms=timestamp_ms)
            future.add_callback(_acknowledged, value.decode())
            sent.append(future)
            time.sleep(int(pause_ms) / 1000)
        number += int(count)
        for future in sent:
            future.get(60)
        producer.close()


def _acknowledged(value: str, metadata: Any) -> None:
    say(metadata.partition, metadata.offset, value)


class Announcer(ConsumerRebalanceListener):  # type: ignore[misc] # the library has no types
    """Says which partitions this member has."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Say the new assignment."""
        say("assigned", *sorted(one.partition for one in assigned))

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Do nothing: all that was said is committed."""


def _until_connected(call: Callable[[], Any]) -> Any:
    """Retry while no node is running: the library raises errors that a retry resolves."""
    while True:
        try:
            return call()
        except KafkaConnectionError:
            time.sleep(0.1)


def _wait_for_metadata(consumer: KafkaConsumer, topic: str) -> None:
    """Wait until the consumer has the topic's metadata, before its first poll joins the group.

    A leader that joins without them assigns nothing and joins again when they arrive. If its poll
    times out during that second join, kafka-python 3.0.12 drops the assignment and sends no more
    heartbeats, with Kafka's broker too (ConsumerCoordinator.need_rejoin no longer sees a reason).
    """
    while not _until_connected(partial(consumer.partitions_for_topic, topic)):
        pass


def consume(arguments: list[str]) -> None:
    """Read as a member of a group; commit what was said."""
    bootstrap, topic, group, count = arguments
    stopped = stop_event()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=300,
        session_timeout_ms=45_000,
        **RECONNECTING,
        **_pinned(),
    )
    consumer.subscribe([topic], listener=Announcer())
    _wait_for_metadata(consumer, topic)
    seen = 0
    while not stopped.is_set() and (int(count) == 0 or seen < int(count)):
        most = 100 if int(count) == 0 else int(count) - seen
        batches = _until_connected(partial(consumer.poll, timeout_ms=200, max_records=most))
        for records in batches.values():
            for one in records:
                say(one.partition, one.offset, one.value.decode())
            seen += len(records)
        if batches:
            ends = {part: records[-1].offset + 1 for part, records in batches.items()}
            offsets = {part: OffsetAndMetadata(end, "", -1) for part, end in ends.items()}
            _until_connected(partial(consumer.commit, offsets))
    consumer.close()


def offset(arguments: list[str]) -> None:
    """Say the first offset at or after each time."""
    bootstrap, topic, partition, timestamps = arguments
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, **_pinned())
    for timestamp in timestamps.split(","):
        asked = TopicPartition(topic, int(partition))
        found = consumer.offsets_for_times({asked: int(timestamp)})[asked]
        say(-1 if found is None else found.offset)
    consumer.close()


if __name__ == "__main__":
    main({"produce": produce, "consume": consume, "offset": offset})
