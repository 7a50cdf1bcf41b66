"""A workload of a queue: one producer, one consumer, and the history of both.

Kafka: none; Jepsen calls such a workload a queue.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.conformance.clusters.history import Lost, Seen, Sent

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "kill-cluster"
PARTITIONS = 6
PROGRESS_LIMIT_S = 120.0
_TICK_S = 0.05
CLIENT: dict[str, str | int | float | bool] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 5000,
    "log_level": 0,
}


def idempotent(settings: dict[str, str | int | float | bool]) -> dict[str, Any]:
    """Return the settings of a producer that retries for minutes.

    One request in flight: with several librdkafka takes OUT_OF_ORDER_SEQUENCE_NUMBER of a later one
    for a reason to begin a new epoch, in which it sends records of all partitions again that may be
    stored (librdkafka #4953).
    """
    return settings | {
        "enable.idempotence": True,
        "max.in.flight.requests.per.connection": 1,
        "acks": "all",
        "linger.ms": 2,
        "request.timeout.ms": 10_000,
        "message.timeout.ms": 300_000,
    }


class Load:
    """A producer and a consumer, each in its thread, and the history."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self.sent: list[Sent] = []
        self.seen: list[Seen] = []
        self.acknowledged = Counter[int]()
        self.errors = Counter[str]()
        self.producers = 0
        self.problem: str | None = None
        self._floors = dict.fromkeys(range(PARTITIONS), -1)
        self._bootstrap = bootstrap
        self._rate = rate
        self._stopped = threading.Event()
        self._sees_all = threading.Event()
        self._producer = threading.Thread(target=self._produce, daemon=True)
        self._consumer = threading.Thread(target=self._consume, daemon=True)

    def start(self) -> None:
        """Start both threads."""
        self._producer.start()
        self._consumer.start()

    def stop_producer(self) -> None:
        """Send nothing more and wait until every record has its answer."""
        self._stopped.set()
        self._producer.join(PROGRESS_LIMIT_S + 10)
        if self._producer.is_alive():
            raise Lost("the producer does not stop")

    def stop_consumer(self, count: int) -> None:
        """Stop the consumer after it has seen this number of records."""
        try:
            wait_for(lambda: len(self.seen) >= count, "the consumer does not reach the end")
        finally:
            self._sees_all.set()
            self._consumer.join(30)

    def _new_producer(self) -> Producer:
        self.producers += 1
        return Producer(idempotent(CLIENT | {"bootstrap.servers": self._bootstrap}))

    def _produce(self) -> None:
        producer = self._new_producer()
        random_partition = random.Random(0)
        due = time.monotonic()
        while not self._stopped.is_set():
            due = max(due, time.monotonic() - 1) + _TICK_S
            for _ in range(max(1, round(self._rate * _TICK_S))):
                if len(producer) < 3000 and not self._send(producer, random_partition):
                    producer.flush(1)
                    producer = self._new_producer()
            while time.monotonic() < due:
                producer.poll(max(0.0, due - time.monotonic()))
        producer.flush(PROGRESS_LIMIT_S)

    def _send(self, producer: Producer, rng: random.Random) -> bool:
        """Send one record; return whether the producer is usable."""
        partition = rng.randrange(PARTITIONS)
        one = Sent(partition, self.producers, self._floors[partition])
        number = len(self.sent)
        self.sent.append(one)

        def delivered(error: KafkaError | None, message: Message) -> None:
            one.answered_s = time.time()
            if error is None:
                one.offset = message.offset()
                self._floors[partition] = max(self._floors[partition], message.offset() or 0)
                self.acknowledged[partition] += 1
            else:
                one.error = error.name()
                self.errors[error.name()] += 1

        value = b"%d %s" % (number, b"x" * rng.randrange(100, 1000))
        try:
            producer.produce(TOPIC, value, partition=partition, on_delivery=delivered)
        except KafkaException as raised:
            one.error = raised.args[0].name()
            self.errors[f"produce: {one.error}"] += 1
            return False
        return True

    def _consume(self) -> None:
        consumer = self._reader()
        consumer.assign([TopicPartition(TOPIC, one, 0) for one in range(PARTITIONS)])
        while not self._sees_all.is_set():
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is None:
                    self.seen.append(_seen(message))
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    self.problem = f"the consumer's offset does not exist: {error.str()}"
                else:
                    self.errors[f"consumer: {error.name()}"] += 1
        consumer.close()

    def _reader(self) -> Consumer:
        return Consumer(
            CLIENT
            | {
                "bootstrap.servers": self._bootstrap,
                "group.id": "no-group",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )

    def ends(self, topic: str, partitions: int) -> dict[int, int]:
        """Return the high watermark of each partition of a topic."""
        consumer = self._reader()
        found = {
            one: consumer.get_watermark_offsets(
                TopicPartition(topic, one), timeout=PROGRESS_LIMIT_S
            )[1]
            for one in range(partitions)
        }
        consumer.close()
        return found

    def read_all(self) -> dict[int, list[int]]:
        """Read every partition from start to end; return the numbers of the records by offset."""
        consumer = self._reader()
        logs: dict[int, list[int]] = {}
        for partition in range(PARTITIONS):
            asked = TopicPartition(TOPIC, partition, 0)
            consumer.assign([asked])
            start, end = consumer.get_watermark_offsets(asked, timeout=PROGRESS_LIMIT_S)
            if start:
                raise Lost(f"partition {partition} starts at {start}")
            log = logs[partition] = []
            deadline = time.monotonic() + PROGRESS_LIMIT_S
            while len(log) < end:
                for message in consumer.consume(1000, 0.1):
                    if message.error() is not None:
                        raise Lost(f"read of {partition}: {message.error()}")
                    if message.offset() != len(log):
                        raise Lost(f"{partition}/{message.offset()} comes after {len(log) - 1}")
                    log.append(_seen(message).number)
                if time.monotonic() > deadline:
                    raise Lost(f"{partition} cannot be read to its end, {len(log)} of {end}")
        consumer.close()
        return logs


def _seen(message: Message) -> Seen:
    number = int((message.value() or b"").split(b" ", 1)[0])
    return Seen(message.partition() or 0, message.offset() or 0, number)


def wait_for(condition: Callable[[], bool], problem: str) -> float:
    """Wait until the condition holds; return the seconds. Raises Lost with the problem."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > PROGRESS_LIMIT_S:
            raise Lost(f"{problem} for {PROGRESS_LIMIT_S:.0f} s")
        time.sleep(0.02)
    return time.monotonic() - begun
