"""Whole nodes whose replication is throttled (KIP-73)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla import NewTopic, TopicPartition
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.quota.replication import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from ottla.testing.simulation import SimulatedCluster
from tests.soaks import with_soaks
from tests.waits import until

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

RATE = 50_000
COUNT, SIZE_BYTES = 60, 10_000
LEADER = {"rate": LEADER_RATE, "replicas": LEADER_REPLICAS}
FOLLOWER = {"rate": FOLLOWER_RATE, "replicas": FOLLOWER_REPLICAS}
SETTINGS = {"replica.fetch.max.bytes": "40000", "replica.fetch.response.max.bytes": "40000"}


def _replica(cluster: SimulatedCluster, node_id: int) -> Partition | None:
    node = cluster[node_id].node
    return None if node is None else node.broker.replicas.find("slow", 0)


async def _start(cluster: SimulatedCluster) -> None:
    await cluster.start()
    async with cluster.admin() as admin:
        await admin.create_topics([NewTopic("slow", assignments={0: [1, 2]})])


async def _produce(cluster: SimulatedCluster) -> None:
    async with cluster.producer(acks="all") as producer:
        for _ in range(COUNT):
            await producer.send("slow", bytes(SIZE_BYTES))
            await producer.flush()  # so that each record is a batch


async def _throttle(cluster: SimulatedCluster, names: dict[str, str], rate: int | None) -> None:
    """Set the rate of all brokers and list all replicas; None removes both."""
    replicas = None if rate is None else "*"
    async with cluster.admin() as admin:
        done = await admin.alter_configs(
            {
                ConfigResource(ResourceType.BROKER, ""): {names["rate"]: rate},
                ConfigResource(ResourceType.TOPIC, "slow"): {names["replicas"]: replicas},
            }
        )
    assert set(done.values()) == {None}


async def _move(cluster: SimulatedCluster, target: list[int]) -> None:
    async with cluster.admin() as admin:
        changed = await admin.alter_partition_reassignments({TopicPartition("slow", 0): target})
    assert list(changed.values()) == [None]


def _counted(cluster: SimulatedCluster, leader: int, follower: int) -> None:
    """Check the metrics of a move: the leader also sent the records to its first follower."""
    sent, fetched = (cluster[one].node for one in (leader, follower))
    assert sent is not None
    assert fetched is not None
    replica = _replica(cluster, leader)
    assert replica is not None
    size = replica.log.size_bytes
    out, into = sent.broker.replicas.traffic, fetched.broker.replicas.traffic
    assert out.bytes_out - out.moved_bytes_out >= size
    assert out.moved_bytes_out >= size, "with the beginnings of batches that did not fit"
    assert (into.bytes_in, into.moved_bytes_in) == (size, size)
    assert replica.bytes_out == 0, "these are what consumers are sent"
    assert replica.bytes_in == size


@pytest.mark.soak
@pytest.mark.parametrize("names", [LEADER, FOLLOWER], ids=["leader", "follower"])
def test_a_throttled_reassignment_takes_its_time(names: dict[str, str]) -> None:
    """600 KB at 50 KB/s; the first eleven seconds' worth comes at once, as in Kafka."""
    cluster = SimulatedCluster(1, config=SETTINGS)

    async def work() -> None:
        await _start(cluster)
        await _produce(cluster)
        await _throttle(cluster, names, RATE // 5)
        started_s = cluster.loop.time()
        await _move(cluster, [1, 3])
        await until(lambda: _replica(cluster, 2) is None)
        moved = _replica(cluster, 3)
        assert moved is not None
        assert moved.log.log_end_offset == COUNT
        took_s = cluster.loop.time() - started_s
        expected_s = COUNT * SIZE_BYTES / (RATE // 5)
        assert expected_s * 0.8 < took_s < expected_s * 1.4
        _counted(cluster, leader=1, follower=3)
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_the_end_of_a_throttle_lets_replicas_go_on() -> None:
    """At one byte a second the move would never end."""
    cluster = SimulatedCluster(2, config=SETTINGS)

    async def work() -> None:
        await _start(cluster)
        await _produce(cluster)
        await _throttle(cluster, FOLLOWER, 1)
        await _move(cluster, [1, 3])
        await asyncio.sleep(30)
        assert _replica(cluster, 2) is not None
        await _throttle(cluster, FOLLOWER, None)
        started_s = cluster.loop.time()
        await until(lambda: _replica(cluster, 2) is None)
        assert cluster.loop.time() - started_s < 10
        await cluster.stop()

    cluster.run(work())


@pytest.mark.parametrize("names", with_soaks([LEADER, FOLLOWER]), ids=["leader", "follower"])
def test_replicas_in_sync_are_not_throttled(names: dict[str, str]) -> None:
    """A limit of one byte a second delays no acknowledgement, and is measured."""
    cluster = SimulatedCluster(3, config=SETTINGS)

    async def work() -> None:
        await _start(cluster)
        await until(lambda: _replica(cluster, 2) is not None)
        await _throttle(cluster, names, 1)
        started_s = cluster.loop.time()
        await _produce(cluster)
        assert cluster.loop.time() - started_s < 10
        node = cluster[1 if names is LEADER else 2].node
        assert node is not None
        quotas = node.broker.quotas.replication
        quota = quotas.leader if names is LEADER else quotas.follower
        assert quota.is_exceeded(node.clock.monotonic_ms())
        await cluster.stop()

    cluster.run(work())
