"""Whole nodes with replicated partitions: acknowledged records outlive brokers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ottla import NewTopic, TopicPartition
from ottla.testing.simulation import SimulatedCluster
from tests.waits import until

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.testing.simulation.node import SimulatedNode

SETTINGS = {
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "replica.fetch.backoff.ms": "200",
}


def _replica(node: SimulatedNode, topic: str = "kept") -> Partition | None:
    return None if node.node is None else node.node.broker.replicas.find(topic, 0)


def _leader(cluster: SimulatedCluster) -> SimulatedNode | None:
    """Return the leader of the newest epoch that a node knows: one that was killed may be older."""
    known = [(one.leader_epoch, one.leader_id) for one in map(_replica, cluster) if one is not None]
    leader_id = max(known, default=(0, -1))[1]
    return cluster[leader_id] if leader_id > 0 else None


def _in_sync(cluster: SimulatedCluster, count: int) -> bool:
    leader = _leader(cluster)
    replica = None if leader is None else _replica(leader)
    return replica is not None and len(replica.isr) == count


async def _create(cluster: SimulatedCluster, min_isr: int = 2) -> None:
    async with cluster.admin() as admin:
        configs = {"min.insync.replicas": str(min_isr)}
        await admin.create_topics([NewTopic("kept", 1, 3, configs=configs)])
    await until(lambda: all(_replica(one) is not None for one in cluster))
    await until(lambda: _in_sync(cluster, 3))


async def _values(cluster: SimulatedCluster, count: int) -> list[bytes]:
    """Read the partition from its start until so many records came."""
    async with cluster.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("kept", 0)])
        values: list[bytes] = []
        async with asyncio.timeout(60):
            while len(values) < count:
                polled = await consumer.poll(timeout=1.0)
                values += [bytes(record.value or b"") for record in polled]
    return values


@pytest.mark.parametrize("power", [False, True])
def test_acknowledged_records_outlive_their_leader(power: bool) -> None:  # noqa: FBT001 - parametrized
    """The next leader has them all, in order; the old one comes back in sync."""
    cluster = SimulatedCluster(11, config=SETTINGS)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        async with cluster.producer(acks="all") as producer:
            for number in range(20):
                await producer.send("kept", b"%d" % number)
            await producer.flush()
            first = _leader(cluster)
            assert first is not None
            first.kill(power=power)
            for number in range(20, 40):
                await producer.send("kept", b"%d" % number)
            await producer.flush()
        assert _leader(cluster) is not first
        assert await _values(cluster, 40) == [b"%d" % number for number in range(40)]
        await first.start()
        await until(lambda: _in_sync(cluster, 3))
        ends = {one.log.log_end_offset for one in map(_replica, cluster) if one is not None}
        assert ends == {40}
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_replica_moves_to_another_broker() -> None:
    """A reassignment copies the log to the new replica and removes it where it was."""
    cluster = SimulatedCluster(5, nodes=4, config=SETTINGS)

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            await admin.create_topics([NewTopic("kept", 1, 3)])
            await until(lambda: _in_sync(cluster, 3))
            async with cluster.producer(acks="all") as producer:
                for number in range(20):
                    await producer.send("kept", b"%d" % number)
                await producer.flush()
            leader = _leader(cluster)
            assert leader is not None
            replica = _replica(leader)
            assert replica is not None
            held = replica.replicas
            target = [*({1, 2, 3, 4} - set(held)), *held[:2]]
            changed = await admin.alter_partition_reassignments({TopicPartition("kept", 0): target})
            assert list(changed.values()) == [None]
            await until(lambda: _replica(cluster[held[2]]) is None)
            moved = _replica(cluster[target[0]])
            assert moved is not None
            assert moved.log.log_end_offset == 20
            await admin.delete_topics(["kept"])
            await until(lambda: all(_replica(one) is None for one in cluster))
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_rolling_restart_fails_no_request() -> None:
    """Each node stops and starts in turn; a producer and an admin client with default settings."""
    cluster = SimulatedCluster(12, config=SETTINGS)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        sent: list[Any] = []
        is_over = False

        async def produce() -> None:
            async with cluster.producer(acks="all") as producer:
                while not is_over:
                    sent.append(await producer.send("kept", b"%d" % len(sent)))
                    await asyncio.sleep(0.02)

        writing = cluster.loop.create_task(produce())
        async with cluster.admin() as admin:
            for number, node in enumerate(cluster):
                await node.stop()
                assert "kept" in {one.name for one in await admin.list_topics()}
                await admin.create_topics([f"during-{number}"])
                await node.start()
                await until(lambda: _in_sync(cluster, 3))
            is_over = True
            await writing
            named = {one.name for one in await admin.list_topics()}
            assert {f"during-{number}" for number in range(3)} <= named
        offsets = [(await one).offset for one in sent]
        assert offsets == list(range(len(sent)))
        assert len(sent) > 100
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_idle_partitions_are_not_read() -> None:
    """Neither empty ones nor those with records of an older epoch than their leader's."""
    cluster = SimulatedCluster(14, config=SETTINGS)

    def hosted() -> list[Partition]:
        nodes = [one.node for one in cluster if one.node is not None]
        return [partition for node in nodes for partition in node.broker.replicas]

    def is_in_sync() -> bool:
        return sum(one.is_leader and len(one.isr) == 3 for one in hosted()) == 12

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            await admin.create_topics([NewTopic("kept", 12, 3)])
        async with cluster.producer(acks="all") as producer:
            for number in range(6):
                await producer.send("kept", b"v", partition=number)
        cluster.kill(3)
        await asyncio.sleep(10)
        await cluster.start(3)
        await until(is_in_sync)
        await asyncio.sleep(5)
        before = [one.read_count for one in hosted()]
        await asyncio.sleep(20)
        assert [one.read_count for one in hosted()] == before

    cluster.run(work())
