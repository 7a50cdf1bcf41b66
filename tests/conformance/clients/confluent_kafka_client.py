"""librdkafka's Python client as a command; `stock.py` says what the commands are."""

from __future__ import annotations

import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.conformance.clients.commands import (
    ABORTED,
    RECORDS_OF_A_TRANSACTION,
    group_settings,
    isolation,
    key_of,
    main,
    say,
    stop_event,
    timestamp_of,
    value_of,
)


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
            "isolation.level": isolation(),
            **group_settings(),
            "reconnect.backoff.max.ms": 500,
        }
    )

    owned: set[int] = set()

    def assigned(_consumer: Any, partitions: list[Any]) -> None:
        owned.update(one.partition for one in partitions)
        say("assigned", *sorted(owned))

    def revoked(_consumer: Any, partitions: list[Any]) -> None:
        owned.difference_update(one.partition for one in partitions)
        say("assigned", *sorted(owned))

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
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


def _transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    return producer


def transact(arguments: list[str]) -> None:
    """Commit and abort transactions with offsets."""
    bootstrap, topic, name, count = arguments
    producer = _transactional(bootstrap, name)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    for number in range(int(count)):
        producer.begin_transaction()
        first = number * RECORDS_OF_A_TRANSACTION
        for one in range(first, first + RECORDS_OF_A_TRANSACTION):
            producer.produce(topic, value_of(one), key_of(one), one % 2)
        producer.flush()
        offsets = [TopicPartition(topic, 0, number + 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
        if number % 3 == ABORTED:
            producer.abort_transaction(60)
            say("aborted", number)
        else:
            producer.commit_transaction(60)
            say("committed", number)
    consumer.close()


def zombie(arguments: list[str]) -> None:
    """Try to commit a transaction after another producer has the id."""
    bootstrap, topic, name = arguments
    stopped = stop_event()
    producer = _transactional(bootstrap, name)
    producer.begin_transaction()
    producer.produce(topic, value_of(0), key_of(0), 0)
    producer.flush()
    say("open")
    stopped.wait()
    try:
        producer.commit_transaction(60)
    except KafkaException as error:
        say("fenced" if error.args[0].fatal() else error)
    else:
        say("committed")


if __name__ == "__main__":
    main(
        {
            "produce": produce,
            "consume": consume,
            "offset": offset,
            "transact": transact,
            "zombie": zombie,
        }
    )
