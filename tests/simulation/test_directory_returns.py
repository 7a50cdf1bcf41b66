"""Whole nodes whose log directories fail and come back while the nodes run."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla import NewTopic
from ottla.errors import LocalDiskError, OttlaError
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from ottla.server.broker.directory_returns import ReturnState
from ottla.testing.disk import Call
from ottla.testing.simulation import SimulatedCluster
from tests.simulation.test_cluster_directories import (
    SECOND,
    _break,
    _check_offline,
    _create,
    _online_count,
)
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
    from collections.abc import Hashable

    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.testing.disk import SimulatedDisk
    from ottla.testing.simulation.node import SimulatedNode

RETURN_MS = 2000
RETURNING = {
    **SETTINGS,
    "log.dirs": f"/data,{SECOND}",
    "log.dir.return.interval.ms": str(RETURN_MS),
}


def _second(node: SimulatedNode) -> LogDirectory:
    assert node.node is not None
    return next(one for one in node.node.broker.logs.directories if one.path == SECOND)


def _state(node: SimulatedNode) -> ReturnState:
    assert node.node is not None
    return node.node.returns.state_of(_second(node))


Matches = Callable[[Call], bool]
OPERATIONS: dict[str, tuple[str, Matches]] = {
    "append": ("append", lambda call: call.path.endswith(".log")),
    "roll": ("create", lambda call: "kept-0/" in call.path),
    "flush": ("sync", lambda call: "kept-0/" in call.path),
    "read": ("read", lambda _call: True),
    "write a checkpoint": ("write", lambda call: "checkpoint" in call.path),
    "put a checkpoint in place": ("rename", lambda call: "checkpoint" in call.path),
    "create a log": ("make", lambda call: "-0" in call.path),
    "delete a log": ("rename", lambda call: call.path.endswith("-delete")),
}
CELLS = [
    *((name, errno.EIO) for name in OPERATIONS),
    *((name, number) for name in ("append", "flush") for number in (errno.ENOSPC, errno.EROFS)),
    *((name, errno.ENOENT) for name in ("read", "roll")),
]


@pytest.mark.parametrize(("operation", "number"), with_soaks(CELLS, count=2))
def test_each_fault_of_each_operation(operation: str, number: int) -> None:
    """The directory goes offline, the other one serves on, and it returns without a restart."""
    config = {
        **RETURNING,
        "log.roll.ms": "200",
        "log.flush.interval.messages": "5",
        "log.flush.offset.checkpoint.interval.ms": "500",
    }
    cluster = SimulatedCluster(41, config=config)
    kind, matches = OPERATIONS[operation]

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        await _send(cluster, range(10))
        failing = _leader(cluster)
        assert failing is not None
        disk = failing.disks[SECOND]
        disk.cold_probability = 0.5
        for _ in range(1 if kind != "read" else 1000):
            disk.fail(lambda call: call.kind == kind and matches(call), number, times=1_000_000)
        count = 10
        async with cluster.admin() as admin:
            for attempt in range(20):
                await _send(cluster, range(count, count + 10))
                count += 10
                if operation in {"create a log", "delete a log"}:
                    names = [f"new{attempt}-{number}" for number in range(2)]
                    await admin.create_topics([NewTopic(name, 1, 3) for name in names])
                    await admin.delete_topics(names)
                if operation == "read":
                    await _values(cluster, count)
                if not _second(failing).is_online:
                    break
                await asyncio.sleep(0.3)
        assert not _second(failing).is_online
        await until(lambda: "; " in _second(failing).offline_reason)
        await _check_offline(cluster, failing)
        disk.heal()
        await until(lambda: _state(failing) is ReturnState.ONLINE)
        await until(lambda: _in_sync(cluster, 3))
        assert await _values(cluster, count) == [b"%d" % one for one in range(count)]
        await cluster.stop()

    cluster.run(work())


def _fail_at_random(disk: SimulatedDisk, rng: Random, kinds: list[str]) -> None:
    """Let all calls of a kind fail from now on, or all but reads with an empty one."""
    kind = rng.choice(kinds)
    number = rng.choice([errno.EIO, errno.ENOSPC, errno.EROFS])
    disk.fail(
        lambda call: call.kind == kind if kind else call.kind != "read", number, times=1_000_000
    )


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_nothing_acknowledged_is_lost_while_directories_fail_and_return(seed: int) -> None:
    """At most one replica of the partition is out of sync at a time, and no node is restarted."""
    rng = Random(seed)
    config = {
        **RETURNING,
        "log.dir.return.interval.ms": "300",
        "log.roll.ms": "500",
        "min.insync.replicas": "2",
    }
    cluster = SimulatedCluster(50 + seed, config=config)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        lives = [one.life_count for one in cluster]
        count = 0
        for _ in range(8):
            failing = cluster[rng.randrange(3) + 1]
            disk = failing.disks[SECOND]
            _fail_at_random(disk, rng, ["append", "sync", "rename", "write", ""])
            for _ in range(rng.randrange(1, 6)):
                more = rng.randrange(1, 30)
                await _send(cluster, range(count, count + more))
                count += more
                await asyncio.sleep(rng.random())
            disk.heal()
            await _send(cluster, range(count, count + 5))
            count += 5
            await until(partial(_is_online, failing))
            await until(lambda: _in_sync(cluster, 3))
        assert await _values(cluster, count) == [b"%d" % one for one in range(count)]
        assert [one.life_count for one in cluster] == lives
        assert any(_second(one).offline_reason for one in cluster), "none has failed"
        replicas = [one for one in map(_replica, cluster) if one is not None]
        await until(lambda: {one.log.log_end_offset for one in replicas} == {count})
        await cluster.stop()

    cluster.run(work())


@pytest.mark.parametrize("seed", with_soaks(range(4)))
def test_several_directories_fail_at_once_and_nodes_are_killed(seed: int) -> None:
    """No disk loses a byte that it took: then nothing acknowledged is lost, whatever fails."""
    rng = Random(seed)
    config = {
        **RETURNING,
        "log.dir.return.interval.ms": "300",
        "log.roll.ms": "500",
        "min.insync.replicas": "2",
    }
    cluster = SimulatedCluster(500 + seed, config=config)
    acknowledged: list[bytes] = []
    numbers = count()

    async def send(records: int) -> None:
        settings = {"delivery_timeout_ms": 4000, "request_timeout_ms": 1000, "linger_ms": 0}
        async with cluster.producer(acks="all", **settings) as producer:
            for _ in range(records):
                value = b"%d" % next(numbers)
                with suppress(OttlaError):  # too few replicas are in sync
                    await producer.send_and_wait("kept", value)
                    acknowledged.append(value)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        nodes = list(cluster)
        for _ in range(5):
            for failing in rng.sample(nodes, rng.choice([1, 2, 3])):
                _fail_at_random(failing.disks[SECOND], rng, ["append", "rename", "write", "create"])
                await send(rng.randrange(5))
            await send(rng.randrange(1, 10))
            if rng.random() < 0.3:
                killed = rng.choice(nodes)
                killed.kill(power=False)
                await asyncio.sleep(rng.random())
                await killed.start()
            for node in nodes:
                node.disks[SECOND].heal()
                await asyncio.sleep(rng.random())
            for node in nodes:
                await until(partial(_is_online, node))
            await until(lambda: _in_sync(cluster, 3))
            await send(5)
        replicas = [one for one in map(_replica, cluster) if one is not None]
        ends = {one.log.log_end_offset for one in replicas}
        assert len(ends) == 1
        assert {*acknowledged} <= {*await _values(cluster, ends.pop())}
        await cluster.stop()

    cluster.run(work())


def _is_online(node: SimulatedNode) -> bool:
    return _second(node).is_online


async def _send(cluster: SimulatedCluster, numbers: range) -> None:
    async with cluster.producer(acks="all") as producer:
        for number in numbers:
            await producer.send("kept", b"%d" % number)
        await producer.flush()


@pytest.mark.parametrize("of_leader", with_soaks([True, False]))
def test_a_directory_returns_without_a_restart(of_leader: bool) -> None:  # noqa: FBT001 - parametrized
    """Its disk works again: its replica catches up, is in sync, and leads again."""
    cluster = SimulatedCluster(31, config=RETURNING)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        await _send(cluster, range(20))
        failing = next(one for one in cluster if (_leader(cluster) is one) is of_leader)
        node, life = failing.node, failing.life_count
        assert node is not None
        _break(failing)
        await _send(cluster, range(20, 40))
        await _check_offline(cluster, failing)
        await asyncio.sleep(3 * RETURN_MS / 1000)
        assert _state(failing) is ReturnState.OFFLINE
        failing.disks[SECOND].heal()
        await until(lambda: _state(failing) is ReturnState.ONLINE)
        await until(lambda: _in_sync(cluster, 3))
        await _send(cluster, range(40, 60))
        for other in cluster:
            if other is not failing:
                other.kill(power=True)
                await until(lambda: _leader(cluster) is not None)
                await other.start()
                await until(lambda: _in_sync(cluster, 3))
        assert await _values(cluster, 60) == [b"%d" % number for number in range(60)]
        assert failing.life_count == life
        ends = {one.log.log_end_offset for one in map(_replica, cluster) if one is not None}
        assert ends == {60}
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_topic_deleted_while_its_log_is_read_can_be_made_again() -> None:
    """The log is set aside, as if the topic had been deleted before: it belongs to no partition."""
    cluster = SimulatedCluster(31, config=RETURNING)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        await _send(cluster, range(20))
        failing = next(one for one in cluster if _leader(cluster) is not one)
        _break(failing)
        await _send(cluster, range(20, 40))
        await _check_offline(cluster, failing)
        assert failing.node is not None
        returns, read = failing.node.returns, []
        run_on_volume = returns._run_on_volume

        def hold(volume: Hashable, job: Callable[[], Any], done: Callable[..., None]) -> None:
            run_on_volume(volume, job, lambda *result: read.append(partial(done, *result)))

        returns._run_on_volume = hold
        failing.disks[SECOND].heal()
        await until(lambda: read)
        async with cluster.admin() as admin:
            await admin.delete_topics(["kept"])
            await until(lambda: all(_replica(one) is None for one in cluster))
            assert _state(failing) is ReturnState.READING
            read.pop()()
            await until(lambda: _state(failing) is ReturnState.ONLINE)
            await admin.create_topics([NewTopic("kept", 1, 3)])
        await until(lambda: all(_replica(one) is not None for one in cluster))
        await _send(cluster, range(5))
        replicas = [one for one in map(_replica, cluster) if one is not None]
        await until(lambda: {one.log.log_end_offset for one in replicas} == {5})
        await cluster.stop()

    cluster.run(work())


def test_a_report_that_arrives_after_the_return_is_corrected() -> None:
    """A heartbeat of before is repeated at a new controller: the directory registers once more."""
    cluster = SimulatedCluster(31, config=RETURNING)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        failing = next(one for one in cluster if _leader(cluster) is not one)
        _break(failing)
        await _send(cluster, range(20))
        await _check_offline(cluster, failing)
        failing.disks[SECOND].heal()
        await until(lambda: _state(failing) is ReturnState.ONLINE)
        await until(lambda: _in_sync(cluster, 3))
        assert failing.node is not None
        lifecycle, node_id = failing.node._lifecycle, failing.node.config.node_id
        directory_id = _second(failing).directory_id
        assert directory_id is not None
        report = BrokerHeartbeatRequest(
            broker_id=node_id,
            broker_epoch=lifecycle.broker_epoch,
            current_metadata_offset=0,
            want_fence=False,
            want_shut_down=False,
            offline_log_dirs=[directory_id],
            cordoned_log_dirs=None,
        )
        lifecycle._controller.send(report)
        await until(lambda: _in_sync(cluster, 2))
        await until(lambda: _online_count(cluster[1], node_id) == 2)
        await until(lambda: _in_sync(cluster, 3))
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_return_that_ends_with_an_error_is_tried_again() -> None:
    """Another directory fails while a future log there is promoted: this one is not left behind."""
    cluster = SimulatedCluster(31, config=RETURNING)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        failing = next(one for one in cluster if _leader(cluster) is not one)
        _break(failing)
        await _send(cluster, range(20))
        await _check_offline(cluster, failing)
        assert failing.node is not None
        futures = failing.node.broker.logs.futures
        settle, errors = futures.settle, [LocalDiskError("of another directory")]

        def fail_once(now_ms: int, assigned: Callable[[Any], Any]) -> None:
            if errors:
                raise errors.pop()
            settle(now_ms, assigned)

        futures.settle = fail_once  # type: ignore[method-assign]
        failing.disks[SECOND].heal()
        await until(lambda: not errors)
        await until(lambda: _state(failing) is ReturnState.ONLINE)
        await until(lambda: _in_sync(cluster, 3))
        await cluster.stop()

    cluster.run(work())


def test_a_stop_does_not_wait_for_the_recovery_of_a_directory() -> None:
    """It may take minutes, after which whoever stops the node kills it."""
    cluster = SimulatedCluster(31, config=RETURNING)

    async def work() -> None:
        await cluster.start()
        await _create(cluster)
        failing = next(one for one in cluster if _leader(cluster) is not one)
        _break(failing)
        await _send(cluster, range(20))
        await _check_offline(cluster, failing)
        assert failing.node is not None
        returns, jobs = failing.node.returns, []
        run_on_volume = returns._run_on_volume
        returns._run_on_volume = lambda _volume, job, _done: jobs.append(job)
        failing.disks[SECOND].heal()
        await until(lambda: jobs)
        returns._run_on_volume = run_on_volume
        returns.close()
        with pytest.raises(LocalDiskError, match="was cancelled"):
            jobs[0]()
        await cluster.stop()

    cluster.run(work())
