"""Stalls of the controller itself: no broker is fenced for the time that it could not listen."""

from __future__ import annotations

import asyncio

import pytest

from ottla.testing.simulation import SimulatedCluster
from tests.soaks import with_soaks

STALL_US = 30_000_000
SESSION_S = 9
"""broker.session.timeout.ms, the default."""


def _fenced(cluster: SimulatedCluster) -> list[int]:
    """Return the brokers that the controller has fenced."""
    node = cluster[1].node
    assert node is not None
    brokers = node.controller.image.cluster.brokers
    return sorted(broker_id for broker_id, broker in brokers.items() if broker.fenced)


async def _ever_fenced(cluster: SimulatedCluster, seconds: float) -> set[int]:
    """Return the brokers that are fenced at some time, which is looked at in each millisecond."""
    found: set[int] = set()
    for _ in range(int(seconds * 1000)):
        found.update(_fenced(cluster))
        await asyncio.sleep(0.001)
    return found


def _cluster(seed: int, nodes: int) -> SimulatedCluster:
    """Return a cluster with one controller, so that no other takes over."""
    roles = {} if nodes == 1 else {1: "controller", **dict.fromkeys(range(2, nodes + 1), "broker")}
    return SimulatedCluster(seed, nodes=nodes, roles=roles)


@pytest.mark.parametrize("nodes", with_soaks([1, 3]))
def test_a_stall_of_the_controllers_disk_fences_no_broker(nodes: int) -> None:
    """Heartbeats arrive meanwhile; their answers wait for records before them."""
    cluster = _cluster(51, nodes)

    async def work() -> None:
        await cluster.start()
        await asyncio.sleep(3)
        cluster[1].disk_latency_us = (STALL_US, STALL_US)
        await asyncio.sleep(STALL_US / 1e6)
        cluster[1].disk_latency_us = (50, 3000)
        assert await _ever_fenced(cluster, 40) == set()

    cluster.run(work())


@pytest.mark.parametrize("nodes", with_soaks([1, 3]))
@pytest.mark.parametrize("pause_s", [SESSION_S - 1, SESSION_S + 1, 60])
def test_a_pause_of_the_controllers_process_fences_no_broker(pause_s: int, nodes: int) -> None:
    """Heartbeats that waited in its sockets are read before a session ends."""
    cluster = _cluster(52, nodes)

    async def work() -> None:
        await cluster.start()
        await asyncio.sleep(3)
        assert _fenced(cluster) == []
        cluster.pause(1)
        await asyncio.sleep(pause_s)
        cluster.resume(1)
        assert await _ever_fenced(cluster, 5) == set()

    cluster.run(work())


def test_a_broker_that_is_silent_after_a_stall_of_the_controller_is_fenced() -> None:
    """The controller listens for a while, not for ever."""
    cluster = _cluster(53, 3)

    async def work() -> None:
        await cluster.start()
        await asyncio.sleep(3)
        cluster.pause(1)
        cluster.pause(3)
        await asyncio.sleep(SESSION_S + 1)
        cluster.resume(1)
        assert await _ever_fenced(cluster, SESSION_S) == {3}

    cluster.run(work())


def test_repeated_stalls_of_the_controller_do_not_keep_a_silent_broker() -> None:
    """Listening after each of them is limited by the time of a session; the other broker stays."""
    cluster = _cluster(54, 3)

    async def work() -> None:
        await cluster.start()
        await asyncio.sleep(3)
        cluster.pause(3)
        found: set[int] = set()
        for _ in range(10):
            cluster.pause(1)
            await asyncio.sleep(2.5)
            cluster.resume(1)
            found |= await _ever_fenced(cluster, 2)
        assert found == {3}

    cluster.run(work())
