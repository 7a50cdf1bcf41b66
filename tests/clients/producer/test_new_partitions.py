"""Partitions that a client's metadata lacks are waited for: the topic may have got more.

Kafka: org.apache.kafka.clients.producer.KafkaProducer.waitOnMetadata.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ottla import TimeoutError  # noqa: A004 - Kafka's
from ottla.clients.blocking import Admin, Consumer, Producer
from ottla.clients.producer.producer import AsyncProducer
from ottla.errors import ErrorCode, KafkaError
from ottla.testing.cluster import Cluster
from ottla.testing.simulation import SimulatedNode
from ottla.types import TopicPartition
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Return the address of a node."""
    with Cluster() as cluster:
        yield cluster.bootstrap


def _grow(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_partitions({topic: 3})


def _create(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(topic, 1)


def test_a_blocking_producer_sends_to_a_partition_that_was_added(bootstrap: str) -> None:
    """At once after the partition was created, and one above all others times out."""
    _create(bootstrap, "blocking")
    with Producer(bootstrap_servers=bootstrap, max_block_ms=20_000) as producer:
        producer.send_and_wait("blocking", b"old", partition=0)
        _grow(bootstrap, "blocking")
        assert producer.send_and_wait("blocking", b"new", partition=2).partition == 2
    with Producer(bootstrap_servers=bootstrap, max_block_ms=300) as producer:
        producer.send_and_wait("blocking", b"old", partition=0)
        with pytest.raises(TimeoutError) as refused:
            producer.send("blocking", b"none", partition=3)
    assert str(refused.value).startswith(
        "Partition 3 of topic blocking with partition count 3 is not present in metadata after "
        "300 ms."
    )


def test_an_asyncio_producer_sends_to_a_partition_that_was_added(bootstrap: str) -> None:
    """Its loop goes on meanwhile; a negative partition is refused at once."""
    _create(bootstrap, "asyncio")

    async def run() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap, max_block_ms=20_000) as producer:
            await producer.send_and_wait("asyncio", b"old", partition=0)
            await asyncio.to_thread(_grow, bootstrap, "asyncio")
            assert (await producer.send_and_wait("asyncio", b"new", partition=2)).partition == 2
            with pytest.raises(KafkaError) as refused:
                await producer.send("asyncio", b"none", partition=-1)
            assert refused.value.code == ErrorCode.INVALID_REQUEST

    asyncio.run(run())


def test_a_transaction_takes_a_partition_that_was_added(bootstrap: str) -> None:
    """The transaction that is open goes on and commits both records."""
    _create(bootstrap, "within")
    with Producer(bootstrap_servers=bootstrap, transactional_id="within") as producer:
        with producer.transaction():
            producer.send("within", b"a", partition=0).result(WAIT_S)
            _grow(bootstrap, "within")
            producer.send("within", b"b", partition=2)
        new = TopicPartition("within", 2)
        with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
            assert consumer.end_offsets([new])[new] == 2  # the record and its marker


def test_a_producer_that_never_waits_requests_what_it_lacks() -> None:
    """With max.block.ms=0 a later send finds the topic, and the partition, as in Kafka."""
    node = SimulatedNode(4)

    async def run() -> None:
        await node.start()
        producer = node.producer(max_block_ms=0)
        with pytest.raises(TimeoutError):
            await producer.send("t", b"unknown topic")
        await asyncio.sleep(1)
        assert (await producer.send_and_wait("t", b"known", partition=0)).offset == 0
        before = producer._core.client.metadata.version
        with pytest.raises(TimeoutError):
            await producer.send("t", b"unknown partition", partition=1000)
        await asyncio.sleep(1)
        assert producer._core.client.metadata.version > before
        await producer.close()

    node.run(run())


QUERIES: dict[str, Callable[[Consumer, TopicPartition], Any]] = {
    "end_offsets": lambda consumer, new: consumer.end_offsets([new])[new],
    "beginning_offsets": lambda consumer, new: consumer.beginning_offsets([new])[new],
    "offsets_for_times": lambda consumer, new: consumer.offsets_for_times({new: 0}),
    "position": lambda consumer, new: (consumer.assign([new]), consumer.position(new)),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_consumer_queries_a_partition_that_was_added(bootstrap: str, name: str) -> None:
    """Each query that names partitions gets newer metadata."""
    topic = f"query-{name}"
    _create(bootstrap, topic)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        old = TopicPartition(topic, 0)
        consumer.assign([old])  # keeps the topic in the metadata
        assert consumer.position(old) == 0
        _grow(bootstrap, topic)
        QUERIES[name](consumer, TopicPartition(topic, 2))


ADMIN_CALLS: dict[str, Callable[[Admin, TopicPartition], Any]] = {
    "list_offsets": lambda admin, new: admin.list_offsets({new: -1}),
    "delete_records": lambda admin, new: admin.delete_records({new: 0}),
    "describe_producers": lambda admin, new: admin.describe_producers([new]),
}


@pytest.mark.parametrize("name", ADMIN_CALLS)
def test_an_admin_client_reaches_a_partition_that_was_added(bootstrap: str, name: str) -> None:
    """Each call that is sent to leaders gets newer metadata."""
    topic = f"admin-{name}"
    _create(bootstrap, topic)
    with Admin(bootstrap_servers=bootstrap) as admin:
        ADMIN_CALLS[name](admin, TopicPartition(topic, 0))
        _grow(bootstrap, topic)
        ADMIN_CALLS[name](admin, TopicPartition(topic, 2))
