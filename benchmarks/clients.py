"""Native clients against aiokafka, kafka-python and confluent-kafka, in alternating runs.

    python benchmarks/clients.py --bootstrap HOST:PORT [--records 300000] [--size 100] [--rounds 3]

Every client has its own topic in each round, so that no client reads what another has warmed.
Prints the best and the median records/s, the CPU time of the client's process in µs per record
(median), and the ratios of speed and CPU to Ottla's (medians). On a shared machine compare the CPU
time. Every client runs once before the first round; the order rotates from round to round.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ottla import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS = 3
Runner = "Callable[[str, str, int, bytes], None]"


def ottla_produce(bootstrap: str, topic: str, count: int, value: bytes) -> None:
    """Blocking producer with one handle per record."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        send = producer.send
        for _ in range(count):
            send(topic, value)
        producer.flush()


def ottla_many_produce(bootstrap: str, topic: str, count: int, value: bytes) -> None:
    """Send a thousand values per call."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        values = [value] * 1000
        for _ in range(count // 1000):
            producer.send_many(topic, values)
        producer.flush()


def ottla_async_produce(bootstrap: str, topic: str, count: int, value: bytes) -> None:
    """Use the asyncio façade."""

    async def run() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
            for _ in range(count):
                await producer.send(topic, value)
            await producer.flush()

    _uvloop_run(run())


def confluent_produce(bootstrap: str, topic: str, count: int, value: bytes) -> None:
    """Defaults: linger 5 ms, idempotence off, batches up to 1 MB."""
    from confluent_kafka import Producer as Other

    producer = Other({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 2_000_000})
    for _ in range(count):
        producer.produce(topic, value)
        producer.poll(0)
    producer.flush()


def kafka_python_produce(bootstrap: str, topic: str, count: int, value: bytes) -> None:
    """Its defaults with the linger of ours."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
    for _ in range(count):
        producer.send(topic, value)
    producer.flush()
    producer.close()


def aiokafka_produce(bootstrap: str, topic: str, count: int, value: bytes) -> None:
    """Its defaults with the linger of ours."""
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
            for _ in range(count):
                await producer.send(topic, value)
            await producer.flush()

    _uvloop_run(run())


def ottla_consume(bootstrap: str, topic: str, count: int, _value: bytes) -> None:
    """`poll`, records with topic and partition."""
    with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=topic + "-o", auto_offset_reset="earliest"
    ) as consumer:
        left = count
        while left > 0:
            for record in consumer.poll(1.0):
                _ = record.value
                left -= 1


def ottla_batches_consume(bootstrap: str, topic: str, count: int, _value: bytes) -> None:
    """`poll_batches` with more records at a time."""
    with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=topic + "-b", auto_offset_reset="earliest"
    ) as consumer:
        left = count
        while left > 0:
            for _, records in consumer.poll_batches(1.0, 10_000):
                for record in records:
                    _ = record.value
                left -= len(records)


def ottla_async_consume(bootstrap: str, topic: str, count: int, _value: bytes) -> None:
    """Use the asyncio façade's `poll`."""

    async def run() -> None:
        async with AsyncConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic + "-x", auto_offset_reset="earliest"
        ) as consumer:
            left = count
            while left > 0:
                for record in await consumer.poll(1.0):
                    _ = record.value
                    left -= 1

    _uvloop_run(run())


def confluent_consume(bootstrap: str, topic: str, count: int, _value: bytes) -> None:
    """`consume` of 500 at a time."""
    from confluent_kafka import Consumer as Other

    consumer = Other(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic + "-c",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    left = count
    while left > 0:
        for message in consumer.consume(500, 1.0):
            _ = message.value()
            left -= 1
    consumer.close()


def kafka_python_consume(bootstrap: str, topic: str, count: int, _value: bytes) -> None:
    """`poll` of 500 at a time."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic + "-k", auto_offset_reset="earliest"
    )
    left = count
    while left > 0:
        for records in consumer.poll(1000).values():
            for record in records:
                _ = record.value
            left -= len(records)
    consumer.close()


def aiokafka_consume(bootstrap: str, topic: str, count: int, _value: bytes) -> None:
    """`getmany`."""
    from aiokafka import AIOKafkaConsumer

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic + "-a", auto_offset_reset="earliest"
        )
        async with consumer:
            left = count
            while left > 0:
                found = await consumer.getmany(timeout_ms=1000)
                for records in found.values():
                    for record in records:
                        _ = record.value
                    left -= len(records)

    _uvloop_run(run())


PRODUCE: dict[str, Callable[[str, str, int, bytes], None]] = {
    "ottla": ottla_produce,
    "ottla many": ottla_many_produce,
    "ottla async": ottla_async_produce,
    "confluent-kafka": confluent_produce,
    "kafka-python": kafka_python_produce,
    "aiokafka": aiokafka_produce,
}
CONSUME: dict[str, Callable[[str, str, int, bytes], None]] = {
    "ottla": ottla_consume,
    "ottla batches": ottla_batches_consume,
    "ottla async": ottla_async_consume,
    "confluent-kafka": confluent_consume,
    "kafka-python": kafka_python_consume,
    "aiokafka": aiokafka_consume,
}
TABLES = {"produce": PRODUCE, "consume": CONSUME}
WARMING_RECORDS = 20_000
SLOW = {"kafka-python": 5, "aiokafka": 5}
"""Divisor of the number of records for slow clients."""


def _uvloop_run(work: Any) -> None:
    import uvloop

    uvloop.run(work)


def main() -> None:
    """Run all clients in turn, round after round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    results: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    value = bytes(options.size)
    with Admin(bootstrap_servers=options.bootstrap) as admin:
        warming = argparse.Namespace(**{**vars(options), "records": WARMING_RECORDS})
        run_round(admin, warming, value, defaultdict(list), 0)
        for turn in range(options.rounds):
            run_round(admin, options, value, results, turn)
    report(results)


def run_round(
    admin: Any, options: argparse.Namespace, value: bytes, results: Any, turn: int
) -> None:
    """Let every client produce to its own topic, then consume one shared topic."""
    shared = f"bench-{uuid.uuid4().hex[:8]}"
    admin.create_topic(shared, PARTITIONS)
    ottla_produce(options.bootstrap, shared, options.records, value)
    for kind, table in TABLES.items():
        names = list(table)
        names = names[turn % len(names) :] + names[: turn % len(names)]
        for name in names:
            function = table[name]
            if options.only and options.only not in name:
                continue
            count = options.records // SLOW.get(name, 1)
            topic = shared
            if kind == "produce":
                topic = f"{shared}-{name.replace(' ', '-')}"
                admin.create_topic(topic, PARTITIONS)
            began, cpu = time.perf_counter(), time.process_time()
            function(options.bootstrap, topic, count, value)
            seconds = time.perf_counter() - began
            cpu_us = (time.process_time() - cpu) / count * 1e6
            results[kind, name].append((count / seconds, cpu_us))
            if topic != shared:
                admin.delete_topic(topic)
    admin.delete_topic(shared)


def report(results: dict[tuple[str, str], list[tuple[float, float]]]) -> None:
    """Print the table."""
    print(
        f"{'':8}{'client':18}{'median/s':>12}{'best/s':>12}{'CPU us/rec':>12}{'speed':>9}{'CPU':>9}"
    )
    for kind, name in [(kind, n) for kind, t in TABLES.items() for n in t if (kind, n) in results]:
        runs = results[kind, name]
        median = statistics.median(rate for rate, _ in runs)
        best = max(rate for rate, _ in runs)
        cpu = statistics.median(one for _, one in runs)
        ours = statistics.median(rate for rate, _ in results[kind, "ottla"])
        ours_cpu = statistics.median(one for _, one in results[kind, "ottla"])
        print(
            f"{kind:8}{name:18}{median:12,.0f}{best:12,.0f}{cpu:12.2f}{ours / median:8.2f}x"
            f"{cpu / ours_cpu:8.2f}x"
        )


if __name__ == "__main__":
    main()
