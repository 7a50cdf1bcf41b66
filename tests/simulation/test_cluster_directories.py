"""Whole nodes with two log directories each: one fails, and acknowledged records stay readable."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ottla import DeliveryError, NewTopic
from ottla.metadata.partition import UNASSIGNED_DIRECTORY
from ottla.testing.simulation import SimulatedCluster
from ottla.types import TopicPartition
from tests.simulation.test_cluster_replication import (
    SETTINGS,
    _in_sync,
    _leader,
    _replica,
    _values,
)
from tests.soaks import with_soaks
from tests.waits import until

if TYPE_CHECKING:
    from ottla.testing.simulation.node import SimulatedNode
    from ottla.types import Uuid

SECOND = "/more"
"""Takes the second topic; the metadata log and the first topic are in the other directory."""


def _assigned(node: SimulatedNode) -> list[Uuid]:
    """Return the directories that a node's metadata names for the replicas of both topics."""
    assert node.node is not None
    topics = node.node.broker.image.topics.by_name
    return [one for name in topics for one in topics[name].partitions[0].directories]


def _is_everywhere(cluster: SimulatedCluster, topic: str) -> bool:
    return all(_replica(one, topic) is not None for one in cluster)


def _online_count(node: SimulatedNode, broker_id: int) -> int:
    assert node.node is not None
    return len(node.node.broker.image.cluster.brokers[broker_id].log_directories)


async def _create(cluster: SimulatedCluster) -> None:
    async with cluster.admin() as admin:
        for name in ("other", "kept"):
            await admin.create_topics([NewTopic(name, 1, 3)])
            await until(partial(_is_everywhere, cluster, name))
    await until(lambda: _in_sync(cluster, 3))
    await until(lambda: all(UNASSIGNED_DIRECTORY not in _assigned(one) for one in cluster))
    assert len({*_assigned(cluster[1])}) == 6


def _break(node: SimulatedNode, kind: str = "") -> None:
    """Let its second disk fail all writes, or the calls of one kind."""
    node.disks[SECOND].fail(
        lambda call: call.kind == kind if kind else call.kind != "read", times=1_000_000
    )


async def _check_offline(cluster: SimulatedCluster, node: SimulatedNode) -> None:
    """Its other directory is served; all others know that this one is not."""
    assert node.node is not None
    node_id = node.node.config.node_id
    await until(lambda: all(_online_count(one, node_id) == 1 for one in cluster))
    await until(lambda: _in_sync(cluster, 2))
    assert _leader(cluster) is not node
    assert not node.node.halted.is_set()
    other = _replica(node, "other")
    assert other is not None
    assert other.log.failure is None


@pytest.mark.parametrize("of_leader", with_soaks([True, False]))
def test_acknowledged_records_outlive_a_log_directory(of_leader: bool) -> None:  # noqa: FBT001 - parametrized
    """The node serves its other directory, also after a restart; healed, it comes back in sync."""
    cluster = SimulatedCluster(21, config={**SETTINGS, "log.dirs": f"/data,{SECOND}"})

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        async with cluster.producer(acks="all") as producer:
            for number in range(20):
                await producer.send("kept", b"%d" % number)
            await producer.flush()
            failing = next(one for one in cluster if (_leader(cluster) is one) is of_leader)
            _break(failing)
            for number in range(20, 40):
                await producer.send("kept", b"%d" % number)
            await producer.flush()
        assert await _values(cluster, 40) == [b"%d" % number for number in range(40)]
        await _check_offline(cluster, failing)
        for kind in ("", "read"):
            failing.kill(power=False)
            _break(failing, kind)
            await failing.start()
            await _check_offline(cluster, failing)
        failing.kill(power=True)
        await failing.start()
        await until(lambda: _in_sync(cluster, 3))
        ends = {one.log.log_end_offset for one in map(_replica, cluster) if one is not None}
        assert ends == {40}
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_the_metadata_log_may_have_a_directory_of_its_own() -> None:
    """It holds no partitions; one that fails among log.dirs stops no node."""
    config = {**SETTINGS, "log.dirs": f"/data,{SECOND}", "metadata.log.dir": "/metadata"}
    cluster = SimulatedCluster(22, config=config)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        async with cluster.producer(acks="all") as producer:
            for number in range(20):
                await producer.send("kept", b"%d" % number)
            await producer.flush()
        node = cluster[1]
        assert any(one.startswith("__cluster_metadata-0") for one in node.disks["/metadata"].list())
        assert not any(one.startswith("__cluster") for one in node.disks["/data"].list())
        node.disks["/data"].fail(lambda call: call.kind != "read", times=1_000_000)
        async with cluster.admin() as admin:
            await admin.create_topics([NewTopic("new", 6, 3)])
        await until(lambda: _online_count(cluster[2], 1) == 1)
        assert node.node is not None
        assert not node.node.halted.is_set()
        node.kill(power=True)
        await node.start()
        await until(lambda: _in_sync(cluster, 3))
        assert await _values(cluster, 20) == [b"%d" % number for number in range(20)]
        assert not any("-0" in one for one in node.disks["/metadata"].list() if "__" not in one)
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_disk_that_hangs_stops_no_other_directory() -> None:
    """Flushes in the healthy directory end; the others take no workers from them."""
    config = {**SETTINGS, "log.dirs": f"/data,{SECOND}", "log.flush.interval.messages": "1"}
    cluster = SimulatedCluster(11, config=config)

    async def work() -> None:
        await cluster.start()
        first = cluster[1]
        assert first.node is not None
        replicas = first.node.broker.replicas
        on_first = {number: [1] for number in range(8)}
        async with cluster.admin() as admin:
            await admin.create_topics([NewTopic("t", assignments=on_first)])
            await until(lambda: all(replicas.find("t", number) for number in on_first))
        places: dict[str, list[int]] = {"/data": [], SECOND: []}
        for number in on_first:
            log_dir = replicas.logs.log_dir_of(TopicPartition("t", number))
            assert log_dir is not None
            places[log_dir.path].append(number)
        assert [len(one) for one in places.values()] == [4, 4]
        with suppress(DeliveryError):  # of what waits when the node is killed
            async with cluster.producer(acks="all", linger_ms=0) as blocked:
                for number in on_first:
                    await blocked.send_and_wait("t", b"before", partition=number)
                first.hang(SECOND)
                waiting = [await blocked.send("t", b"x", partition=one) for one in places[SECOND]]
                async with cluster.producer(acks="all", linger_ms=0) as producer:
                    async with asyncio.timeout(5):
                        for number in places["/data"]:
                            await producer.send_and_wait("t", b"y", partition=number)
                assert not any(one.done for one in waiting)
                first.kill(power=False)

    cluster.run(work())


def test_a_copy_of_a_log_is_set_aside_at_the_next_start() -> None:
    """A dated copy has the topic id of the partition, which is served on."""
    cluster = SimulatedCluster(3, nodes=1)

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin, cluster.producer() as producer:
            await admin.create_topics([NewTopic("kept", 1, 1)])
            await producer.send_and_wait("kept", b"one")
        await cluster.stop(1)
        disk = cluster[1].disk
        files = [path for path in disk.files() if path.startswith("kept-0/")]
        for name in ("kept-20261101", "copy-of-kept-0"):
            disk.make(name)
            for path in files:
                copied = path.replace("kept-0", name)
                disk.write_file_atomically(copied, disk.read_file(path))
        await cluster.start(1)
        strays = [name for name in disk.list() if name.endswith("-stray")]
        assert [name.partition(".")[0] for name in strays] == ["copy-of-kept-0", "kept-20261101"]
        for name in strays:
            assert {path.rpartition("/")[2] for path in files} == set(disk.list(name))
        assert await _values(cluster, 1) == [b"one"]
        cluster[1].kill(power=False)

    cluster.run(work())
