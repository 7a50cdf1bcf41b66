"""Whole nodes with racks: consumers read from the replica in their own (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla import NewTopic, TopicPartition
from ottla.errors import ErrorCode
from ottla.testing.simulation import SimulatedCluster
from tests.soaks import with_soaks
from tests.waits import until

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.testing.simulation.node import SimulatedNode

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NEAR = TopicPartition("near", 0)


def _replica(node: SimulatedNode) -> Partition:
    assert node.node is not None
    return node.node.broker.replicas.get("near", 0)


def _cluster(seed: int, **more: str) -> SimulatedCluster:
    """Return three nodes, each in a rack of its own."""
    cluster = SimulatedCluster(seed, config={"replica.selector.class": SELECTOR, **more})
    for number in (1, 2, 3):
        cluster[number].config["broker.rack"] = f"rack{number}"
    return cluster


async def _start(cluster: SimulatedCluster, count: int = 20) -> None:
    """Start it with a topic that broker 1 leads and all replicate, with records in it."""
    await cluster.start()
    async with cluster.admin() as admin:
        await admin.create_topics([NewTopic("near", assignments={0: [1, 2, 3]})])
    await _produce(cluster, 0, count)
    await until(lambda: {_replica(one).log.high_watermark for one in cluster} == {count})


async def _produce(cluster: SimulatedCluster, first: int, end: int, *, partition: int = 0) -> None:
    async with cluster.producer(acks="all") as producer:
        for number in range(first, end):
            await producer.send("near", b"%d" % number, partition=partition)
        await producer.flush()


@pytest.mark.parametrize(
    ("rack", "readers"), with_soaks([("rack3", {3}), ("rack1", {1}), ("else", {1})])
)
def test_consumers_read_from_the_replica_in_their_rack(rack: str, readers: set[int]) -> None:
    """From the leader where no replica is in it; what is produced later comes from there too."""
    cluster = _cluster(1)

    async def work() -> None:
        await _start(cluster)
        before = {number: _replica(cluster[number]).bytes_out for number in (1, 2, 3)}
        async with cluster.consumer(auto_offset_reset="earliest", client_rack=rack) as consumer:
            consumer.assign([NEAR])
            values: list[bytes] = []
            while len(values) < 20:
                values += [bytes(one.value or b"") for one in await consumer.poll(timeout=1.0)]
            await _produce(cluster, 20, 40)
            while len(values) < 40:
                values += [bytes(one.value or b"") for one in await consumer.poll(timeout=1.0)]
        assert values == [b"%d" % number for number in range(40)]
        followers = {2, 3} - readers
        sent = {one for one in before if _replica(cluster[one]).bytes_out > before[one]}
        assert not sent & followers
        assert readers <= sent
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_fetch_that_waits_at_a_follower_ends_with_its_high_watermark() -> None:
    """Not with its time: the consumer would wait for it ten seconds."""
    cluster = _cluster(2)

    async def work() -> None:
        await _start(cluster)
        settings: dict[str, Any] = {"client_rack": "rack2", "fetch_max_wait_ms": 10_000}
        async with cluster.consumer(auto_offset_reset="latest", **settings) as consumer:
            consumer.assign([NEAR])
            assert not await consumer.poll(timeout=5.0)
            started_s = cluster.loop.time()
            await _produce(cluster, 20, 21)
            assert [bytes(one.value or b"") for one in await consumer.poll(timeout=9.0)] == [b"20"]
            # the follower hears of the high watermark with its next fetch, after at most 0.5 s
            assert cluster.loop.time() - started_s < 1.0
        await cluster.stop()

    cluster.run(work())


def test_a_consumer_returns_to_the_leader_when_its_near_replica_is_gone() -> None:
    """It reads on where it was."""
    cluster = _cluster(3, **{"replica.lag.time.max.ms": "3000"})

    async def work() -> None:
        await _start(cluster)
        async with cluster.consumer(auto_offset_reset="earliest", client_rack="rack2") as consumer:
            consumer.assign([NEAR])
            values: list[bytes] = []
            while len(values) < 20:
                values += [bytes(one.value or b"") for one in await consumer.poll(timeout=1.0)]
            cluster.kill(2)
            await _produce(cluster, 20, 40)
            while len(values) < 40:
                values += [bytes(one.value or b"") for one in await consumer.poll(timeout=1.0)]
        assert values == [b"%d" % number for number in range(40)]
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_partition_of_other_brokers_is_led_elsewhere() -> None:
    """A client with old metadata has to refresh it; a partition that is nowhere is unknown."""
    cluster = _cluster(4)

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            await admin.create_topics([NewTopic("near", assignments={0: [1, 2]})])
        node = cluster[3].node
        assert node is not None
        await until(lambda: node.broker.has_partition("near", 0))
        why_missing = node.broker.replicas.why_missing
        assert why_missing("near", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert why_missing("near", 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_follower_wakes_the_fetch_of_a_partition_that_was_idle() -> None:
    """Two partitions in one session: one gets records, one has had none for long."""
    cluster = _cluster(5)

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            await admin.create_topics([NewTopic("near", assignments={0: [1, 2], 1: [1, 2]})])
        await _produce(cluster, 0, 1, partition=1)
        settings: dict[str, Any] = {"client_rack": "rack2", "fetch_max_wait_ms": 10_000}
        async with cluster.consumer(auto_offset_reset="earliest", **settings) as consumer:
            consumer.assign([NEAR, TopicPartition("near", 1)])
            for number in range(1, 5):
                await consumer.poll(timeout=2.0)
                await _produce(cluster, number, number + 1, partition=1)
            while await consumer.poll(timeout=3.0):
                pass
            started_s = cluster.loop.time()
            await _produce(cluster, 9, 10)
            assert [bytes(one.value or b"") for one in await consumer.poll(timeout=9.0)] == [b"9"]
            assert cluster.loop.time() - started_s < 1.0
        await cluster.stop()

    cluster.run(work())
