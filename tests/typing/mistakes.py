"""Mistakes that both type checkers report: an unused `ignore` is an error of the checker itself.

It is checked, not run: scripts/check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ottla
from ottla import Admin, AsyncProducer, Consumer, Producer, RebalanceListener, TopicPartition

if TYPE_CHECKING:
    from ottla.testing import Kafka

BROKER = "localhost:9092"

ottla.Prodcer()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
Producer(bootstrap_servers=BROKER, lingerms=20)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Producer(bootstrap_servers=BROKER, linger_ms="20")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Producer(bootstrap_servers=BROKER, compression_type="zst")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Producer({"bootstrap.servers": BROKER})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Producer(bootstrap_servers=BROKER, group_id="billing")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
AsyncProducer(bootstrap_servers=BROKER, lingerms=20)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Admin(BROKER)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Consumer({"bootstrap.servers": BROKER})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Consumer("orders", bootstrap_server=BROKER)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
TopicPartition("orders", "0")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def send(producer: Producer, consumer: Consumer) -> None:
    """Misuse methods."""
    producer.send("orders", b"value", headers={"n": 1})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    print(producer.send("orders", b"value").result().ofset)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
    consumer.assign(["orders"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    for record in consumer:
        record.offset = 7  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


class Listener(RebalanceListener):
    """Has a method with a wrong argument."""

    def on_partitions_assigned(self, partitions: int) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Do nothing."""


def fill(kafka: Kafka) -> None:
    """Misuse the fixture."""
    kafka.topic("orders", partition=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    kafka.topic("orders").produce([1, 2])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    kafka.consumer("orders", lingerms=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
