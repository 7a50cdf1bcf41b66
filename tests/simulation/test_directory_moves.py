"""Whole nodes whose replicas move between log directories: crashes and faults at any step."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest

from ottla import KafkaError, NewTopic, TopicPartition
from ottla.testing.simulation import SimulatedCluster
from tests.simulation.test_cluster_replication import SETTINGS, _in_sync, _replica, _until, _values

if TYPE_CHECKING:
    from ottla.testing.simulation.node import SimulatedNode

DIRECTORIES = ("/data", "/more")
KEPT = TopicPartition("kept", 0)
CONFIG = {**SETTINGS, "log.dirs": ",".join(DIRECTORIES)}


def _place(node: SimulatedNode) -> str | None:
    """Return the directory in which a node has the partition's log."""
    if node.node is None:
        return None
    log_dir = node.node.broker.logs.log_dir_of(KEPT)
    return None if log_dir is None else log_dir.path


def _assigned_path(node: SimulatedNode) -> str | None:
    """Return the directory that the metadata name for the node's own replica."""
    assert node.node is not None
    broker = node.node.broker
    partition = broker.image.topics.by_name["kept"].partitions[0]
    wanted = partition.directory_of(broker.node_id)
    return next((one.path for one in broker.logs.directories if one.directory_id == wanted), None)


def _other(path: str | None) -> str:
    assert path is not None
    return DIRECTORIES[1 - DIRECTORIES.index(path)]


def _names(node: SimulatedNode) -> list[str]:
    """Return the partition's directories of a node in all log directories."""
    return [
        name
        for path in DIRECTORIES
        for name in node.disks[path].list()
        if name.startswith("kept") and not name.endswith("-delete")
    ]


async def _move(cluster: SimulatedCluster, node: SimulatedNode, path: str) -> KafkaError | None:
    assert node.node is not None
    key = KEPT, node.node.broker.node_id
    async with cluster.admin() as admin:
        return (await admin.alter_replica_log_dirs({key: path}))[key]


async def _produce(cluster: SimulatedCluster, start: int, end: int) -> None:
    async with cluster.producer(acks="all") as producer:
        for number in range(start, end):
            await producer.send("kept", b"%d" % number)
        await producer.flush()


async def _create(cluster: SimulatedCluster, replicas: int) -> None:
    async with cluster.admin() as admin:
        await admin.create_topics([NewTopic("kept", 1, replicas)])
    await _until(lambda: all(_replica(one) is not None for one in cluster))
    await _until(lambda: _in_sync(cluster, replicas))


def _has_moved(node: SimulatedNode, path: str) -> bool:
    return _place(node) == _assigned_path(node) == path and _names(node) == ["kept-0"]


def test_replicas_move_under_load() -> None:
    """The leader's and a follower's, there and back; nothing is lost, reordered or twice."""
    cluster = SimulatedCluster(31, config=CONFIG)

    async def work() -> None:
        await cluster.start()
        await _create(cluster, 3)
        load = cluster.loop.create_task(_produce(cluster, 0, 400))
        for _ in range(2):
            for node in cluster:
                target = _other(_place(node))
                assert await _move(cluster, node, target) is None
                await _until(partial(_has_moved, node, target))
        await load
        assert await _values(cluster, 400) == [b"%d" % number for number in range(400)]
        await _until(lambda: _in_sync(cluster, 3))
        await cluster.stop()

    cluster.run(work())


@pytest.mark.parametrize("seed", range(8))
def test_a_crash_during_a_move_loses_nothing(seed: int) -> None:
    """At a random moment of a move the only node dies; the next start continues or completes it."""
    cluster = SimulatedCluster(
        seed + 100, nodes=1, config={**CONFIG, "log.flush.interval.messages": "1"}
    )
    rng = Random(seed)

    async def work() -> None:
        await cluster.start()
        await _create(cluster, 1)
        node = cluster[1]
        await _produce(cluster, 0, 100)
        target = _other(_place(node))
        assert await _move(cluster, node, target) is None
        sent = 100
        for _ in range(3):
            await asyncio.sleep(rng.random() * rng.choice((0.004, 0.02, 0.1)))
            node.kill(power=rng.random() < 0.5)
            await node.start()
            await _until(lambda: _in_sync(cluster, 1))
            await _produce(cluster, sent, sent + 20)
            sent += 20
        await _until(lambda: _has_moved(node, target) or _has_moved(node, _other(target)))
        assert await _values(cluster, sent) == [b"%d" % number for number in range(sent)]
        await cluster.stop()

    cluster.run(work())
