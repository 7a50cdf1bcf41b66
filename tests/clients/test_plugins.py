"""Interceptors, partitioners and wake-ups.

Kafka: clients.producer.{ProducerInterceptor, Partitioner}, clients.consumer.ConsumerInterceptor.
"""

from __future__ import annotations

import asyncio
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients.blocking import Consumer, Producer
from ottla.clients.consumer.consumer import AsyncConsumer
from ottla.clients.interceptors import ConsumerInterceptor, ProducerInterceptor
from ottla.clients.metadata import ClusterMetadata
from ottla.clients.producer.accumulator import Accumulator
from ottla.clients.producer.producer import AsyncProducer
from ottla.clients.settings import PRODUCER, read_settings
from ottla.errors import ErrorCode, KafkaError, WakeupError
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clients.interceptors import ProducerRecord


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Yield a node's address."""
    with Cluster() as cluster:
        yield cluster.bootstrap


class Marking(ProducerInterceptor):
    """Adds a header, and records the outcomes."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Mark the record."""
        return record._replace(headers={**dict(record.headers), "seen": b"yes"})

    def on_acknowledgement(self, metadata: Any, error: KafkaError | None) -> None:
        """Keep the offset or the error."""
        self.heard.append(error.code if error is not None else metadata.offset)

    def close(self) -> None:
        """Keep the end."""
        self.heard.append("closed")


class Failing:
    """Fails at everything, and has not every method."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Fail."""
        raise RuntimeError(record.topic)

    on_consume = on_send


class Choosing(ConsumerInterceptor):
    """Leaves records out, and keeps the commits."""

    def __init__(self) -> None:
        self.commits: list[Any] = []

    def on_consume(self, records: list[Any]) -> list[Any]:
        """Leave out what has the value of no interest."""
        return [record for record in records if record.value != b"dull"]

    def on_commit(self, offsets: Any) -> None:
        """Keep the commit."""
        self.commits.append({where: one.offset for where, one in offsets.items()})


def test_interceptors_change_and_follow_records(bootstrap: str) -> None:
    """Records pass through all in order; one that fails is passed over; refusals are heard."""
    marking, choosing = Marking(), Choosing()
    with Producer(
        bootstrap_servers=bootstrap, interceptor_classes=[Failing, marking], max_request_size=1000
    ) as producer:
        producer.send("i", b"dull", headers={"a": b"1"}).result(WAIT_S)
        producer.send_many("i", [b"bright"])
        with pytest.raises(KafkaError):
            producer.send("i", bytes(2000))
    assert marking.heard == [0, ErrorCode.MESSAGE_TOO_LARGE, 1, "closed"]
    with Consumer(
        "i",
        bootstrap_servers=bootstrap,
        group_id="i",
        auto_offset_reset="earliest",
        interceptor_classes=[Failing(), choosing],
    ) as consumer:
        found = consumer.poll(WAIT_S)
        consumer.commit()
    assert [record.value for record in found] == [b"bright"]
    assert dict(found[0].headers) == {"seen": b"yes"}
    assert choosing.commits[0] == {TopicPartition("i", 0): 2}


def test_interceptors_of_coroutines(bootstrap: str) -> None:
    """The asyncio clients have them too, by name as well."""
    name = f"{__name__}.Marking"
    marking = Marking()

    async def run() -> None:
        async with AsyncProducer(
            bootstrap_servers=bootstrap, interceptor_classes=[name, marking]
        ) as producer:
            await (await producer.send("ia", b"v"))
            await producer.send_many("ia", [b"w"])

    asyncio.run(run())
    assert marking.heard == [0, 1, "closed"]
    with pytest.raises(KafkaError, match=r"there is no Python class 'com\.example\.Interceptor'"):
        Producer(bootstrap_servers=bootstrap, interceptor_classes="com.example.Interceptor")


def test_wakeup_ends_a_poll(bootstrap: str) -> None:
    """From another thread, or before the poll; the consumer goes on afterwards."""
    with Consumer("w", bootstrap_servers=bootstrap, group_id="w") as consumer:
        threading.Timer(0.1, consumer.wakeup).start()
        with pytest.raises(WakeupError):
            consumer.poll(WAIT_S)
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(WAIT_S)
        assert consumer.poll(0.01) == []


def test_an_enforced_rebalance_begins_a_new_generation(bootstrap: str) -> None:
    """group_metadata returns the generation; the membership continues."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("e", b"v").result(WAIT_S)
    with Consumer(
        "e", bootstrap_servers=bootstrap, group_id="e", auto_offset_reset="earliest"
    ) as consumer:
        assert len(consumer.poll(WAIT_S)) == 1
        assert consumer.lag(TopicPartition("e", 0)) == 0
        before = consumer.group_metadata()
        assert before.group_id == "e"
        consumer.enforce_rebalance("test")
        while consumer.group_metadata().generation != before.generation + 1:
            consumer.poll(0.05)
        assert consumer.group_metadata().member_id == before.member_id


def test_wakeup_of_a_coroutine(bootstrap: str) -> None:
    """The asyncio consumer's poll ends too."""

    async def run() -> None:
        async with AsyncConsumer("w", bootstrap_servers=bootstrap, group_id="wa") as consumer:
            threading.Timer(0.1, consumer.wakeup).start()
            with pytest.raises(WakeupError):
                await consumer.poll(WAIT_S)

    asyncio.run(run())


class _Metadata(ClusterMetadata):
    def partition_count(self, topic: str) -> int:
        return 3

    def leader(self, partition: TopicPartition) -> int:
        return 1


def _accumulator(**settings: Any) -> Accumulator:
    read = read_settings(PRODUCER, None, settings)
    metadata = _Metadata(max_age_ms=1, allow_auto_create=True)
    return Accumulator(read, metadata, rng=random.Random(1), wake=lambda: None, wall_ns=lambda: 0)


def _partitions(made: Accumulator, count: int, key: bytes | None, size: int = 1) -> list[int]:
    out = []
    for _ in range(count):
        delivery = made.append("t", bytes(size), key, None, None)
        assert delivery is not None
        out.append(delivery.batch.topic_partition.partition)
    return out


def last_partition(_topic: str, _key: bytes | None, count: int) -> int:
    """Choose the last partition."""
    return count - 1


def test_partitioners_of_ones_own() -> None:
    """Kafka's round robin by its Java name, a function, a dotted name; keys do not matter."""
    java = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    assert _partitions(_accumulator(partitioner_class=java), 4, b"k") == [0, 1, 2, 0]
    for given in (last_partition, f"{__name__}.last_partition"):
        assert _partitions(_accumulator(partitioner_class=given), 2, None) == [2, 2]
    for wrong in ("org.example.Mine", 7):
        with pytest.raises(KafkaError, match=r"partitioner\.class"):
            _accumulator(partitioner_class=wrong)


def test_a_partition_that_is_not_taken_is_passed_over() -> None:
    """partitioner.availability.timeout.ms, counted from the end of the linger time (KIP-794)."""
    made = _accumulator(
        partitioner_availability_timeout_ms=100,
        batch_size=1000,
        linger_ms=5,
        partitioner_adaptive_partitioning_enable=False,
    )
    first = _partitions(made, 1, None, 900)[0]
    made.now_ms = 106
    assert first not in _partitions(made, 30, None, 990)


def test_delivery_timeout_covers_one_try() -> None:
    """One too short is refused when it was asked for, and raised when it is the default."""
    with pytest.raises(KafkaError, match=r"delivery\.timeout\.ms should be equal"):
        Producer(bootstrap_servers="localhost:1", delivery_timeout_ms=1000)
    producer = AsyncProducer(bootstrap_servers="localhost:1", request_timeout_ms=130_000)
    assert producer._core.settings.delivery_timeout_ms == 130_005
