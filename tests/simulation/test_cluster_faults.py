"""Whole nodes under the faults of a cluster's life; each test names one, and what must hold."""

from __future__ import annotations

import asyncio

import pytest

from ottla import NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.storage.layout import METADATA_LOG
from ottla.testing.simulation import SimulatedCluster
from ottla.testing.simulation.node import SimulatedNode
from ottla.types import Uuid
from tests.simulation.test_cluster_replication import (
    SETTINGS,
    _create,
    _in_sync,
    _leader,
    _replica,
    _values,
)
from tests.waits import until

YEAR_MS = 365 * 24 * 3_600_000


def _another_node(
    cluster: SimulatedCluster, like_id: int, host: str, **identity: str
) -> SimulatedNode:
    """Return a broker on a new host with the identity of another node but for these lines."""
    model = cluster[like_id]
    lines = model.disk.content("meta.properties").decode().splitlines()
    known = dict(line.split("=", 1) for line in lines if "=" in line)
    known["directory.id"] = str(Uuid(b"another disk, ok"))
    known.update({name.replace("_", "."): value for name, value in identity.items()})
    config = {
        **model.config,
        "process.roles": "broker",
        "node.id": known["node.id"],
        "listeners": f"PLAINTEXT://{host}:9092",
        "controller.listener.names": "CONTROLLER",
    }
    node = SimulatedNode(999, config=config, network=cluster.network, host=host)
    text = "".join(f"{name}={value}\n" for name, value in known.items())
    node.disk.write_file_atomically("meta.properties", text.encode())
    return node


def test_a_metadata_disk_that_dies_under_the_leader_makes_another_lead() -> None:
    """The node halts and serves nothing; what was committed is in the next leader's image."""
    cluster = SimulatedCluster(31, config=SETTINGS)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        failing = cluster.active_controller
        assert failing is not None
        assert failing.node is not None
        halted = failing.node.halted
        failing.disk.fail(
            lambda call: METADATA_LOG in call.path and call.kind != "read", times=10**6
        )
        others = [one for one in cluster if one is not failing]
        async with others[0].admin() as admin:
            creating = asyncio.ensure_future(admin.create_topics(["later"]))
            await until(halted.is_set)
            failing.kill(power=False)  # as the process ends
            await creating
        async with others[0].producer(acks="all") as producer:
            for number in range(20):
                await producer.send("kept", b"%d" % number)
            await producer.flush()
        assert cluster.active_controller in others
        assert await _values(cluster, 20) == [b"%d" % number for number in range(20)]

    cluster.run(work())


def test_an_active_controller_whose_disk_hangs_gives_way() -> None:
    """It answers fetches but commits nothing: a broker that dies later would lead for ever."""
    cluster = SimulatedCluster(7, nodes=4, roles={4: "broker"}, config=SETTINGS)

    async def work() -> None:
        await cluster.start()
        active = cluster.active_controller
        assert active is not None
        others = [one for one in (1, 2, 3) if one != int(active.config["node.id"])]
        async with cluster.admin() as admin, cluster.producer(acks="all") as producer:
            await admin.create_topics([NewTopic("kept", assignments={0: [4, *others]})])
            await producer.send_and_wait("kept", b"before")
            active.disk_latency_us = (3_600_000_000, 3_600_000_000)
            await asyncio.sleep(1)  # a flush hangs, and later records wait for it
            cluster.kill(4)
            async with asyncio.timeout(30):
                await producer.send_and_wait("kept", b"after")
        assert cluster.active_controller not in {None, active}
        for host in cluster:
            host.kill(power=False)

    cluster.run(work())


@pytest.mark.parametrize("step_ms", [-YEAR_MS, YEAR_MS])
def test_a_clock_that_jumps_moves_no_leader_and_no_session(step_ms: int) -> None:
    """Of the active controller, which follows: epochs stay, and the partition's leader goes on.

    A leader a year in the past would refuse records of the present, as Kafka's does.
    """
    cluster = SimulatedCluster(34, config=SETTINGS)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        active = cluster.active_controller
        assert active is not None
        assert active.node is not None
        epoch = active.node.controller.quorum.leader_epoch
        leader = _leader(cluster)
        assert leader is not active
        async with cluster.producer(acks="all") as producer:
            for number in range(30):
                if number == 10:
                    active.clock_step_ms = step_ms
                await producer.send("kept", b"%d" % number)
                await producer.flush()
        assert await _values(cluster, 30) == [b"%d" % number for number in range(30)]
        assert (cluster.active_controller, _leader(cluster)) == (active, leader)
        assert active.node.controller.quorum.leader_epoch == epoch
        assert _in_sync(cluster, 3)
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_replica_that_was_away_longer_than_the_retention_starts_over() -> None:
    """Its whole log is older than the leader's first record; it is in sync again in the end."""
    kept = {
        "log.retention.ms": "60000",
        "log.segment.bytes": "1048576",
        "log.retention.bytes": "-1",
    }
    often = {"log.retention.check.interval.ms": "10000", "log.segment.delete.delay.ms": "1000"}
    cluster = SimulatedCluster(33, config={**SETTINGS, **kept, **often})

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        leader = _leader(cluster)
        assert leader is not None
        away = next(
            one for one in cluster if one is not leader and one is not cluster.active_controller
        )
        async with cluster.producer(acks="all") as producer:
            await producer.send("kept", b"old")
            await producer.flush()
            await away.stop()
            for _ in range(12):
                await producer.send("kept", b"n" * 200_000)
                await producer.flush()
            replica = _replica(leader)
            assert replica is not None
            await until(lambda: replica.log.log_start_offset > 5, 300.0)
            await producer.send("kept", b"new")
            await producer.flush()
        await away.start()
        await until(lambda: _in_sync(cluster, 3), 300.0)
        returned = _replica(away)
        assert returned is not None
        assert returned.log.log_start_offset >= 5
        assert returned.log.log_end_offset == replica.log.log_end_offset
        await cluster.stop()

    cluster.run(work())


def test_a_longer_log_of_an_older_epoch_gives_way() -> None:
    """Records that only a leader that was cut off had are truncated; acknowledged ones stay."""
    cluster = SimulatedCluster(34, config=SETTINGS)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        async with cluster.producer(acks="all") as producer:
            await producer.send("kept", b"acknowledged")
            await producer.flush()
        old = _leader(cluster)
        assert old is not None
        others = [one for one in cluster if one is not old]
        for one in others:
            cluster.network.cut(old.host, one.host)
        async with old.producer(acks=1, delivery_timeout_ms=40_000) as producer:
            for _ in range(30):
                await producer.send("kept", b"only here")
            await producer.flush()
        longer = _replica(old)
        assert longer is not None
        assert longer.log.log_end_offset == 31
        await until(lambda: _leader(cluster) in others)
        cluster.heal()
        await until(lambda: _in_sync(cluster, 3))
        assert longer.log.log_end_offset == 1
        assert await _values(cluster, 1) == [b"acknowledged"]
        await cluster.stop()

    cluster.run(work())


def test_a_second_node_of_the_same_id_is_refused_while_the_first_serves() -> None:
    """Its registration fails with Kafka's code; the first one keeps its session and leadership."""
    settings = {**SETTINGS, "initial.broker.registration.timeout.ms": "4000"}
    cluster = SimulatedCluster(35, config=settings)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        leader = _leader(cluster)
        broker_id = next(one for one in (1, 2, 3) if cluster[one] is not cluster.active_controller)
        twin = _another_node(cluster, broker_id, "twin")
        with pytest.raises(KafkaError) as caught:
            await twin.start()
        assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert _leader(cluster) is leader
        assert _in_sync(cluster, 3)
        await cluster.stop()

    cluster.run(work())


def test_a_node_of_another_cluster_is_refused() -> None:
    """It learns nothing and changes nothing; its start ends with the reason."""
    cluster = SimulatedCluster(
        36, nodes=1, config={**SETTINGS, "initial.broker.registration.timeout.ms": "4000"}
    )

    async def work() -> None:
        await cluster.start()
        foreign = _another_node(cluster, 1, "other", node_id="4", cluster_id="another-cluster")
        with pytest.raises(KafkaError) as caught:
            await foreign.start()
        assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert "of another cluster: correct controller.quorum.boot" in caught.value.message
        for one in cluster:
            assert one.node is not None
            assert 4 not in one.node.broker.image.cluster.brokers
        await cluster.stop()

    cluster.run(work())


def test_a_quorum_that_is_lost_for_good_is_named_at_the_start() -> None:
    """A voter that is left waits as Kafka's does; with a limit its start names what is missing."""
    settings = {**SETTINGS, "server.max.startup.time.ms": "90000"}
    cluster = SimulatedCluster(37, config=settings)

    async def work() -> None:
        await cluster.start()
        await _create(cluster, min_isr=1)
        left = _leader(cluster)
        assert left is not None
        for one in cluster:
            if one is not left:
                one.kill(power=True)
        left.kill(power=False)
        with pytest.raises(KafkaError) as caught:
            await left.start()
        assert caught.value.message == (
            "no controller leads the quorum: a majority of the voters [1, 2, 3] must run; where "
            "that cannot be, see 'Repair the quorum' in docs/operations.md"
        )

    cluster.run(work())
