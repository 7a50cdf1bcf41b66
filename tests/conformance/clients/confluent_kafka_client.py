"""librdkafka's Python client as a command; `stock.py` says what the commands are."""

from __future__ import annotations

import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conformance.clients.commands import key_of, main, say, stop_event, timestamp_of, value_of


def produce(arguments: list[str]) -> None:
    """Send records with each codec in turn; say each acknowledgement."""
    bootstrap, topic, count, codecs, first, pause_ms = arguments
    number = int(first)
    for codec in codecs.split(","):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
            }
        )
        for one in range(number, number + int(count)):
            producer.produce(
                topic,
                value_of(one),
                key_of(one),
                timestamp=timestamp_of(one),
                on_delivery=_acknowledged,
            )
            producer.poll(int(pause_ms) / 1000)
            time.sleep(int(pause_ms) / 1000)
        number += int(count)
        if producer.flush(60):
            sys.exit("records were not acknowledged in time")


def _acknowledged(problem: Any, message: Any) -> None:
    if problem is not None:
        say("failed", problem)
    else:
        say(message.partition(), message.offset(), message.value().decode())


def consume(arguments: list[str]) -> None:
    """Read as a member of a group; commit what was said."""
    bootstrap, topic, group, count = arguments
    stopped = stop_event()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 300,
            "reconnect.backoff.max.ms": 500,
        }
    )

    def assigned(_consumer: Any, partitions: list[Any]) -> None:
        say("assigned", *sorted(one.partition for one in partitions))

    consumer.subscribe([topic], on_assign=assigned)
    seen = 0
    while not stopped.is_set() and (int(count) == 0 or seen < int(count)):
        most = 100 if int(count) == 0 else int(count) - seen
        messages: list[Any] = [one for one in consumer.consume(most, 0.2) if one.error() is None]
        for one in messages:
            say(one.partition(), one.offset(), one.value().decode())
        if messages:
            ends = {one.partition(): one.offset() + 1 for one in messages}
            offsets = [TopicPartition(topic, part, end) for part, end in ends.items()]
            consumer.commit(offsets=offsets, asynchronous=False)
        seen += len(messages)
    consumer.close()


def offset(arguments: list[str]) -> None:
    """Say the first offset at or after each time."""
    bootstrap, topic, partition, timestamps = arguments
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    for timestamp in timestamps.split(","):
        asked = TopicPartition(topic, int(partition), int(timestamp))
        say(consumer.offsets_for_times([asked], timeout=30)[0].offset)
    consumer.close()


if __name__ == "__main__":
    main({"produce": produce, "consume": consume, "offset": offset})
