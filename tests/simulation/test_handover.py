"""How soon another controller is active after one that stopped, or that started again."""

from __future__ import annotations

import asyncio

import pytest

from ottla.testing.simulation import SimulatedCluster
from tests.soaks import with_soaks
from tests.waits import until

ELECTION_TIMEOUT_US = 1_000_000
"""controller.quorum.election.timeout.ms: no election may have to wait for it."""


async def _until_active(cluster: SimulatedCluster, *but: int) -> None:
    others = {None, *(cluster[number] for number in but)}
    await until(lambda: cluster.active_controller not in others, 30, 0.001)


@pytest.mark.parametrize("seed", with_soaks([100, 157, 160, 201]))
def test_a_stopped_controller_hands_over_at_once(seed: int) -> None:
    """The second follower knows of it, whatever the leader has answered before."""
    cluster = SimulatedCluster(seed)

    async def work() -> None:
        await cluster.start()
        active = cluster.active_controller
        stopped = next(number for number in (1, 2, 3) if cluster[number] is active)
        stopping = asyncio.create_task(cluster.stop(stopped))
        while active is not None and active.node is not None and active.node.controller.active:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.001)
        begun_us = cluster.loop.now_us
        await _until_active(cluster, stopped)
        assert cluster.loop.now_us - begun_us < ELECTION_TIMEOUT_US // 4
        await stopping

    cluster.run(work())


@pytest.mark.soak
@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_stopped_controller_hands_over_to_a_voter_that_is_there(seed: int) -> None:
    """Its first successor is not the one that is down, and the other is not told later for it."""
    cluster = SimulatedCluster(seed, nodes=5)

    async def work() -> None:
        await cluster.start()
        active = cluster.active_controller
        stopped = next(number for number in range(1, 6) if cluster[number] is active)
        down = min({1, 2} - {stopped})
        cluster.kill(down)
        await asyncio.sleep(1.5)
        stopping = asyncio.create_task(cluster.stop(stopped))
        while active is not None and active.node is not None and active.node.controller.active:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.001)
        begun_us = cluster.loop.now_us
        await _until_active(cluster, stopped)
        assert cluster.loop.now_us - begun_us < 60_000
        await stopping

    cluster.run(work())


@pytest.mark.soak
def test_a_controller_that_starts_again_is_elected_at_once() -> None:
    """Its followers need not wait for the end of their fetches: a leader asks for no votes."""
    cluster = SimulatedCluster(41)

    async def work() -> None:
        await cluster.start()
        active = cluster.active_controller
        killed = next(number for number in (1, 2, 3) if cluster[number] is active)
        cluster.kill(killed)
        begun_us = cluster.loop.now_us
        starting = asyncio.create_task(cluster.start(killed))
        await _until_active(cluster)
        assert cluster.loop.now_us - begun_us < ELECTION_TIMEOUT_US // 4
        await starting

    cluster.run(work())
