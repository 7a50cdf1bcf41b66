"""Whole nodes: every controller, also a standby one, registers with the active one (KIP-919)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.clients.admin.admin import AsyncAdmin
from ottla.testing.simulation import SimulatedCluster
from tests.soaks import with_soaks
from tests.waits import until

if TYPE_CHECKING:
    from ottla.types import Uuid

CONTROLLERS = "node1:9093,node2:9093,node3:9093"


def _incarnations(cluster: SimulatedCluster, node_id: int) -> dict[int, Uuid]:
    """Return what a node knows of the controllers."""
    node = cluster[node_id].node
    assert node is not None
    known = node.controller.image.cluster.controllers
    return {number: known[number].incarnation_id for number in sorted(known)}


async def _all_know(cluster: SimulatedCluster, expected: set[int]) -> dict[int, Uuid]:
    """Wait until the nodes that run know these controllers; return their incarnations."""
    running = [number for number in (1, 2, 3) if cluster[number].node is not None]
    await until(lambda: all(set(_incarnations(cluster, one)) == expected for one in running))
    known = [_incarnations(cluster, one) for one in running]
    assert all(one == known[0] for one in known)
    return known[0]


def _roles_of(cluster: SimulatedCluster) -> tuple[int, int, int]:
    """Return the active controller and the standby ones."""
    active = cluster.active_controller
    assert active is not None
    number = int(active.host.removeprefix("node"))
    first, second = (one for one in (1, 2, 3) if one != number)
    return number, first, second


@pytest.mark.soak
def test_all_controllers_are_registered_and_described() -> None:
    """DescribeCluster of each controller lists them; nothing is registered again while they run."""
    cluster = SimulatedCluster(1)

    async def work() -> None:
        await cluster.start()
        registered = await _all_know(cluster, {1, 2, 3})
        environment = cluster[1].client_environment()
        async with AsyncAdmin(environment=environment, bootstrap_controllers=CONTROLLERS) as admin:
            described = await admin.describe_cluster()
        nodes = [(one.node_id, one.host, one.port) for one in described.brokers]
        assert nodes == [(number, f"node{number}", 9093) for number in (1, 2, 3)]
        await asyncio.sleep(150)
        assert await _all_know(cluster, {1, 2, 3}) == registered
        await cluster.stop()

    cluster.run(work())


def test_a_restarted_standby_controller_is_a_new_incarnation() -> None:
    """That of the others stays, also that of the next active controller."""
    cluster = SimulatedCluster(2)

    async def work() -> None:
        await cluster.start()
        before = await _all_know(cluster, {1, 2, 3})
        active, restarted, other = _roles_of(cluster)
        await cluster.stop(restarted)
        await cluster.start(restarted)
        await until(
            lambda: all(
                _incarnations(cluster, one)[restarted] != before[restarted] for one in (1, 2, 3)
            )
        )
        after = await _all_know(cluster, {1, 2, 3})
        assert [after[one] for one in (active, other)] == [before[one] for one in (active, other)]
        cluster.kill(active)
        await until(lambda: cluster.active_controller is not None)
        await asyncio.sleep(10)
        assert _incarnations(cluster, other) == after
        await cluster.stop()

    cluster.run(work())


@pytest.mark.parametrize("delay_ms", with_soaks([5, 20, 50, 100, 200, 400]))
def test_a_controller_registers_though_the_active_one_dies_meanwhile(delay_ms: int) -> None:
    """The next active controller is asked again, or has the record already."""
    cluster = SimulatedCluster(3)

    async def work() -> None:
        await cluster.start()
        before = await _all_know(cluster, {1, 2, 3})
        active, restarted, other = _roles_of(cluster)
        cluster.kill(restarted)
        starting = cluster.loop.create_task(cluster.start(restarted))
        await asyncio.sleep(delay_ms / 1000)
        cluster.kill(active)
        await starting
        await until(
            lambda: all(
                _incarnations(cluster, one)[restarted] != before[restarted]
                for one in (restarted, other)
            )
        )
        await cluster.start(active)
        await until(lambda: _incarnations(cluster, other)[active] != before[active])
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_a_node_that_is_only_a_broker_registers_no_controller() -> None:
    """Nor does it list controllers: only their listeners do."""
    cluster = SimulatedCluster(4, roles={1: "controller", 3: "broker"})

    async def work() -> None:
        await cluster.start()
        await _all_know(cluster, {1, 2})
        await asyncio.sleep(10)
        assert set(_incarnations(cluster, 3)) == {1, 2}
        await cluster.stop()

    cluster.run(work())
