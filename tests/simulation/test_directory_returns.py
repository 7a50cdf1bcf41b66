"""Whole nodes whose log directories fail and come back while the nodes run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.server.broker.directory_returns import ReturnState
from ottla.testing.simulation import SimulatedCluster
from tests.simulation.test_cluster_directories import SECOND, _break, _check_offline, _create
from tests.simulation.test_cluster_replication import (
    SETTINGS,
    _in_sync,
    _leader,
    _replica,
    _values,
)
from tests.waits import until

if TYPE_CHECKING:
    from ottla.storage.directories.log_dir import LogDirectory
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


async def _send(cluster: SimulatedCluster, numbers: range) -> None:
    async with cluster.producer(acks="all") as producer:
        for number in numbers:
            await producer.send("kept", b"%d" % number)
        await producer.flush()


@pytest.mark.parametrize("of_leader", [True, False])
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
