"""Whole nodes: brokers that are unregistered while they run, leaders after unclean elections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla import NewTopic, TopicPartition
from ottla.metadata.partition import LeaderRecoveryState
from ottla.testing.simulation import SimulatedCluster
from tests.waits import until

if TYPE_CHECKING:
    from ottla.metadata.partition import PartitionRegistration

UNCLEAN = {"unclean.leader.election.interval.ms": "1000"}
SETTINGS = {"replica.lag.time.max.ms": "3000", "broker.session.timeout.ms": "3000"}


def _partition(cluster: SimulatedCluster, node_id: int, index: int = 0) -> PartitionRegistration:
    node = cluster[node_id].node
    assert node is not None
    found: PartitionRegistration = node.broker.image.topics.by_name["t"].partitions[index]
    return found


def _registered(cluster: SimulatedCluster, node_id: int) -> set[int]:
    node = cluster[node_id].node
    assert node is not None
    return set(node.broker.image.cluster.brokers)


async def _produce(cluster: SimulatedCluster, value: bytes) -> None:
    async with cluster.producer(acks="all") as producer:
        await producer.send("t", value)
        await producer.flush()


@pytest.mark.soak
def test_an_unregistered_broker_that_runs_is_registered_again_by_a_restart_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As of Kafka; others lead what it led, and the log says what to do."""
    caplog.set_level("INFO", "ottla.metadata")
    cluster = SimulatedCluster(1, config=SETTINGS)

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            await admin.create_topics([NewTopic("t", assignments={0: [3, 1, 2]})])
            await _produce(cluster, b"1")
            await admin.unregister_broker(3)
        await until(lambda: _partition(cluster, 1).leader in {1, 2})
        await asyncio.sleep(30)
        for number in (1, 2, 3):
            assert _registered(cluster, number) == {1, 2}
            assert 3 not in _partition(cluster, number).isr
        assert cluster[3].is_alive
        assert "broker 3 was unregistered while it runs" in caplog.text
        await _produce(cluster, b"2")
        await cluster.stop(3)
        await cluster.start(3)
        await until(lambda: _registered(cluster, 1) == {1, 2, 3})
        await until(lambda: len(_partition(cluster, 1).isr) == 3)
        await cluster.stop()

    cluster.run(work())


def test_a_leader_after_an_unclean_election_is_recovered_with_its_next_isr() -> None:
    """KIP-704: RECOVERING from the election on, RECOVERED by the leader's AlterPartition."""
    cluster = SimulatedCluster(
        2, nodes=5, roles={1: "broker", 2: "broker"}, config={**SETTINGS, **UNCLEAN}
    )
    states: list[tuple[int, tuple[int, ...]]] = []

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            configs = {"unclean.leader.election.enable": "true"}
            made = NewTopic("t", assignments={0: [1, 2]}, configs=configs)
            await admin.create_topics([made])
            await until(lambda: len(_partition(cluster, 4).isr) == 2)
            cluster.kill(2)
            await until(lambda: _partition(cluster, 4).isr == (1,))
            await _produce(cluster, b"only on 1")
        node = cluster[4].node
        assert node is not None

        def note(_delta: object, _image: object) -> None:
            one = _partition(cluster, 4)
            states.append((one.leader_recovery_state, one.isr))

        node.controller.add_listener(note)
        cluster.kill(1)
        await until(lambda: _partition(cluster, 4).leader == -1)
        await cluster.start(2)
        await until(lambda: _partition(cluster, 4).leader == 2)
        assert _partition(cluster, 4).leader_recovery_state == LeaderRecoveryState.RECOVERING
        await cluster.start(1)
        await until(lambda: set(_partition(cluster, 4).isr) == {1, 2})
        assert _partition(cluster, 4).leader_recovery_state == LeaderRecoveryState.RECOVERED
        await _produce(cluster, b"on both")
        async with cluster.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            values = [bytes(one.value or b"") for one in await consumer.poll(timeout=5.0)]
        assert values == [b"on both"]
        await cluster.stop()

    cluster.run(work())
    assert (LeaderRecoveryState.RECOVERING, (2,)) in states
    assert all(len(isr) <= 1 for state, isr in states if state == LeaderRecoveryState.RECOVERING)
