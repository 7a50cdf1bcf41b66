"""Whole nodes whose replicas move between log directories: crashes and faults at any step."""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla import KafkaError, NewTopic, TopicPartition
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.errors import ErrorCode
from ottla.replication import directory_move
from ottla.server.broker.directory_moves import DirectoryMoves
from ottla.testing.simulation import SimulatedCluster
from ottla.types import FileSlice
from tests.simulation.test_cluster_replication import (
    SETTINGS,
    _in_sync,
    _leader,
    _replica,
    _values,
)
from tests.simulation.test_stalls import FileCalls
from tests.soaks import with_soaks
from tests.waits import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.purgatory.timing_wheel import TimerTask
    from ottla.replication.directory_move import DirectoryMove
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
    await until(lambda: all(_replica(one) is not None for one in cluster))
    await until(lambda: _in_sync(cluster, replicas))


def _has_moved(node: SimulatedNode, path: str) -> bool:
    return _place(node) == _assigned_path(node) == path and _names(node) == ["kept-0"]


def _simulate(
    work: Callable[[SimulatedCluster], Awaitable[None]],
    seed: int,
    *,
    nodes: int = 3,
    **settings: str,
) -> None:
    """Run something on a cluster whose nodes all have the partition."""
    cluster = SimulatedCluster(seed, nodes=nodes, config={**CONFIG, **settings})

    async def whole() -> None:
        await cluster.start()
        await _create(cluster, nodes)
        await work(cluster)
        await cluster.stop()

    cluster.run(whole())


def test_replicas_move_under_load() -> None:
    """The leader's and a follower's, there and back; nothing is lost, reordered or twice."""

    async def work(cluster: SimulatedCluster) -> None:
        load = cluster.loop.create_task(_produce(cluster, 0, 400))
        for _ in range(2):
            for node in cluster:
                target = _other(_place(node))
                assert await _move(cluster, node, target) is None
                await until(partial(_has_moved, node, target))
        await load
        assert await _values(cluster, 400) == [b"%d" % number for number in range(400)]
        await until(lambda: _in_sync(cluster, 3))

    _simulate(work, 31)


def test_the_controller_s_answer_starts_no_second_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A move has one continuation at a time: two would append the same records."""
    tasks: dict[DirectoryMove, TimerTask] = {}
    waiting: list[bool] = []
    later, turn = DirectoryMoves._later, DirectoryMoves._turn

    def wait(moves: DirectoryMoves, move: DirectoryMove, delay_ms: int) -> None:
        later(moves, move, delay_ms)
        task = moves._continuations[move]
        assert task is not None
        tasks[move] = task

    def go_on(moves: DirectoryMoves, move: DirectoryMove, *read: Any) -> None:
        task = tasks.pop(move, None)
        waiting.append(task is not None and task.is_waiting)
        turn(moves, move, *read)

    monkeypatch.setattr(DirectoryMoves, "_later", wait)
    monkeypatch.setattr(DirectoryMoves, "_turn", go_on)
    cluster = SimulatedCluster(32, nodes=1, config={**CONFIG, "min.insync.replicas": "1"})

    async def work() -> None:
        await cluster.start()
        await _create(cluster, 1)
        load = cluster.loop.create_task(_produce(cluster, 0, 2000))
        (node,) = cluster
        for _ in range(4):
            target = _other(_place(node))
            assert await _move(cluster, node, target) is None
            await until(partial(_has_moved, node, target))
        await load
        await cluster.stop()
        assert len(waiting) > 4
        assert not any(waiting)

    cluster.run(work())


async def _produce_until(cluster: SimulatedCluster, is_over: asyncio.Event, letter: bytes) -> int:
    """Send one record after the other; return how many."""
    count = 0
    async with cluster.producer(acks="all", linger_ms=0) as producer:
        while not is_over.is_set():
            await producer.send_and_wait("kept", b"%s%d" % (letter, count))
            count += 1
    return count


def test_a_move_flushes_nothing_on_the_loop() -> None:
    """The partition's log is flushed all the time: its flushes wait for the exchange."""
    cluster = SimulatedCluster(41, nodes=1, config={**CONFIG, "log.flush.interval.messages": "1"})

    async def work() -> None:
        await cluster.start()
        await _create(cluster, 1)
        calls, node, is_over = FileCalls(cluster), cluster[1], asyncio.Event()
        load = [
            cluster.loop.create_task(_produce_until(cluster, is_over, letter))
            for letter in (b"a", b"b", b"c", b"d", b"e", b"f")
        ]
        for _ in range(4):
            target = _other(_place(node))
            assert await _move(cluster, node, target) is None
            calls.flushes.clear()  # the copy may need an older checkpoint when it is created
            await until(partial(_has_moved, node, target))
            assert not calls.flushes
        is_over.set()
        sent = sum([await one for one in load])
        assert len(set(await _values(cluster, sent))) == sent

    cluster.run(work())


@pytest.mark.parametrize(
    ("owner", "name"),
    [(FileSlice, "read"), (directory_move, "append_copied")],
    ids=["read", "write"],
)
def test_a_disk_that_fails_ends_the_move(
    owner: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one on the loop; the move is told as failed, and the next one is not held up."""

    async def work(cluster: SimulatedCluster) -> None:
        await _produce(cluster, 0, 10)
        node = cluster[1]
        assert node.node is not None
        moves, target = node.node.broker.moves, _other(_place(node))

        def fail(*_: object, **__: object) -> bytes:
            raise OSError(errno.EIO, "the disk fails")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, fail)
            assert await _move(cluster, node, target) is None
            await until(lambda: moves.failed_count == 1)
        assert len(moves) == 0
        assert await _move(cluster, node, target) is None
        await until(partial(_has_moved, node, target))
        assert await _values(cluster, 10) == [b"%d" % number for number in range(10)]

    _simulate(work, 42, nodes=1)
    (line,) = [one for one in caplog.messages if "was not moved" in one]
    if name == "append_copied":  # which is not called a read
        assert "a disk failed: [Errno 5] the disk fails" in line


@pytest.mark.parametrize("seed", with_soaks(range(8), count=2))
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
            await until(lambda: _in_sync(cluster, 1))
            await _produce(cluster, sent, sent + 20)
            sent += 20
        await until(lambda: _has_moved(node, target) or _has_moved(node, _other(target)))
        assert await _values(cluster, sent) == [b"%d" % number for number in range(sent)]
        await cluster.stop()

    cluster.run(work())


async def _throttle(cluster: SimulatedCluster, node: SimulatedNode, rate: str | None) -> None:
    """Limit the moves of a node, and wait until it knows."""
    assert node.node is not None
    broker = ConfigResource(ResourceType.BROKER, str(node.node.broker.node_id))
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    async with cluster.admin() as admin:
        await admin.alter_configs({broker: {name: rate}})
    config = node.node.broker.metadata
    await until(lambda: config.config.overrides.get(name) == rate)


async def _begin_slowly(cluster: SimulatedCluster, node: SimulatedNode) -> str:
    """Begin a move that a throttle stops halfway; return its target."""
    async with cluster.producer(acks="all", linger_ms=0) as producer:
        for number in range(40):
            await producer.send("kept", b"%d" % number + b"." * 10_000)
            await producer.flush()
    await _throttle(cluster, node, "1000")
    target = _other(_place(node))
    assert await _move(cluster, node, target) is None
    await asyncio.sleep(2)
    assert node.node is not None
    (future,) = node.node.broker.logs.futures
    assert 0 < node.node.broker.moves.lag_of(future) < 40
    return target


@pytest.mark.soak
def test_a_throttle_holds_a_move_and_a_request_for_its_own_directory_ends_it() -> None:
    """Nothing is left of the copy; without the throttle the next move is complete at once."""

    async def work(cluster: SimulatedCluster) -> None:
        node = cluster[1]
        target = await _begin_slowly(cluster, node)
        assert await _move(cluster, node, _other(target)) is None
        await until(partial(_has_moved, node, _other(target)))
        await _throttle(cluster, node, None)
        assert await _move(cluster, node, target) is None
        await until(partial(_has_moved, node, target), 3)

    _simulate(work, 32)


def test_a_topic_that_is_deleted_during_a_move() -> None:
    """Both directories are removed; a topic of that name starts at nothing."""

    async def work(cluster: SimulatedCluster) -> None:
        node = cluster[2]
        await _begin_slowly(cluster, node)
        async with cluster.admin() as admin:
            await admin.delete_topics(["kept"])
        await until(lambda: not _names(node))
        await _create(cluster, 3)
        await _produce(cluster, 0, 5)
        assert await _values(cluster, 5) == [b"%d" % number for number in range(5)]
        assert _names(node) == ["kept-0"]

    _simulate(work, 33)


@pytest.mark.parametrize("is_source", with_soaks([True, False]))
def test_a_directory_that_fails_during_a_move(is_source: bool) -> None:  # noqa: FBT001 - parametrized
    """The controller knows where the replica is; healed and restarted it is in sync again."""

    async def work(cluster: SimulatedCluster) -> None:
        node = next(one for one in cluster if _leader(cluster) is one)
        assert node.node is not None
        source = "/more" if is_source else "/data"  # the metadata log is in /data
        assert await _move(cluster, node, source) is None
        await until(partial(_has_moved, node, source))
        target = await _begin_slowly(cluster, node)
        node.disks["/more"].fail(lambda call: call.kind != "read", times=1_000_000)
        await _throttle(cluster, node, None)
        if is_source:
            await until(lambda: _leader(cluster) is not node)
        await until(lambda: not len(node.node.broker.moves))  # type: ignore[union-attr]
        await until(lambda: _in_sync(cluster, 2 if is_source else 3))
        assert _assigned_path(node) == source
        assert isinstance(await _move(cluster, node, target), KafkaError)
        node.kill(power=True)
        await node.start()
        await until(lambda: _in_sync(cluster, 3))
        await until(lambda: _place(node) == _assigned_path(node))
        assert len(await _values(cluster, 40)) == 40

    _simulate(work, 34)


@pytest.mark.soak
def test_a_move_continues_after_a_clean_stop() -> None:
    """With what was copied; the throttle still holds it."""

    async def work(cluster: SimulatedCluster) -> None:
        node = cluster[3]
        target = await _begin_slowly(cluster, node)
        assert node.node is not None
        (future,) = node.node.broker.logs.futures
        copied = future.log_end_offset
        await node.stop()
        await node.start()
        (future,) = node.node.broker.logs.futures
        assert future.log_end_offset >= copied
        await _throttle(cluster, node, None)
        await until(partial(_has_moved, node, target))
        await until(lambda: _in_sync(cluster, 3))

    _simulate(work, 36)


@pytest.mark.soak
def test_a_replica_comes_to_the_directory_that_was_requested_before() -> None:
    """As the tool does for one that a reassignment adds: until then it is not available."""
    cluster = SimulatedCluster(37, config=CONFIG)

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            await admin.create_topics([NewTopic("kept", -1, -1, {}, {0: [1, 2]})])
            await until(lambda: _in_sync(cluster, 2))
            node = cluster[3]
            for _ in range(2):
                missing = await _move(cluster, node, "/more")
                assert missing is not None
                assert missing.code is ErrorCode.REPLICA_NOT_AVAILABLE
            await admin.alter_partition_reassignments({KEPT: [3, 1]})
        await until(lambda: _place(node) == "/more")
        await until(lambda: _leader(cluster) is not None and _in_sync(cluster, 2))
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_moves_that_are_refused() -> None:
    """Codes as of Kafka; the directory of a replica that is not there yet is remembered."""
    cluster = SimulatedCluster(35, config=CONFIG)

    async def work() -> None:
        await cluster.start()
        node = cluster[1]
        unknown = await _move(cluster, node, "/more")
        assert unknown is not None
        assert unknown.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await _create(cluster, 3)
        assert _place(node) == "/more"
        missing = await _move(cluster, node, "/nowhere")
        assert missing is not None
        assert missing.code is ErrorCode.LOG_DIR_NOT_FOUND
        broker = ConfigResource(ResourceType.BROKER, "1")
        async with cluster.admin() as admin:
            await admin.alter_configs({broker: {"cordoned.log.dirs": "/data"}})
        assert node.node is not None
        logs = node.node.broker.logs
        await until(lambda: logs.cordoned)
        cordoned = await _move(cluster, node, "/data")
        assert cordoned is not None
        assert cordoned.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
@pytest.mark.parametrize("of_leader", [True, False])
def test_41_a_move_outlives_changes_of_the_leader(of_leader: bool) -> None:  # noqa: FBT001 - parametrized
    """KAFKA-16297: the copy of a replica that leads or follows by turns is exchanged, complete."""

    async def work(cluster: SimulatedCluster) -> None:
        leader = _leader(cluster)
        moving = next(one for one in cluster if (one is leader) is of_leader)
        target = await _begin_slowly(cluster, moving)
        for number in range(2):
            killed = _leader(cluster)
            if killed is None or killed is moving:
                killed = next(one for one in cluster if one is not moving)
            killed.kill(power=True)
            await _produce(cluster, 50 * number, 50 * number + 50)
            await killed.start()
            await until(lambda: _in_sync(cluster, 3))
        await _throttle(cluster, moving, None)
        await until(partial(_has_moved, moving, target))
        assert (await _values(cluster, 140))[40:] == [b"%d" % number for number in range(100)]
        ends = {one.log.log_end_offset for one in map(_replica, cluster) if one is not None}
        assert ends == {140}

    _simulate(work, 42)
