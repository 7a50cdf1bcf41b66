"""Brokers whose process has ended are fenced at once; all others keep their sessions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ottla import NewTopic
from ottla.raft import driver
from ottla.server.controller import schedule
from ottla.server.controller.schedule import ProbeResult, probe
from ottla.testing.simulation import SimulatedCluster
from tests.soaks import with_soaks
from tests.waits import until

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION_S = 9.0


def _standby(cluster: SimulatedCluster) -> int:
    """Return the id of a node that is not the active controller."""
    return next(n for n in (1, 2, 3) if cluster[n] is not cluster.active_controller)


def _is_fenced(cluster: SimulatedCluster, broker_id: int) -> bool:
    active = cluster.active_controller
    if active is None or active.node is None:
        return False
    return active.node.broker.image.cluster.brokers[broker_id].fenced


async def _fenced_after(cluster: SimulatedCluster, broker_id: int, *, power: bool) -> float:
    """Return the seconds from the end of a node to its fencing."""
    started_s = cluster.loop.time()
    cluster.kill(broker_id, power=power)
    await until(lambda: _is_fenced(cluster, broker_id))
    return cluster.loop.time() - started_s


def _epoch(cluster: SimulatedCluster) -> int:
    active = cluster.active_controller
    assert active is not None
    assert active.node is not None
    return active.node.controller.driver.node.epoch


def test_a_connection_that_breaks_elects_no_controller() -> None:
    """The followers' connections are reset, but the leader's port accepts new ones."""
    cluster = SimulatedCluster(9)

    async def work() -> None:
        await cluster.start()
        first, epoch = cluster.active_controller, _epoch(cluster)
        for _ in range(5):
            cluster.network.break_links()
            await asyncio.sleep(1)
            assert (cluster.active_controller, _epoch(cluster)) == (first, epoch)

    cluster.run(work())


def test_a_killed_controller_is_replaced_at_once() -> None:
    """Without waiting for controller.quorum.fetch.timeout.ms, 2 s."""
    cluster = SimulatedCluster(10)

    async def work() -> None:
        await cluster.start()
        first = cluster.active_controller
        assert first is not None
        started_s = cluster.loop.time()
        cluster.kill(int(first.config["node.id"]), power=False)
        await until(lambda: cluster.active_controller not in {None, first})
        assert cluster.loop.time() - started_s < 1

    cluster.run(work())


@pytest.mark.soak
@pytest.mark.parametrize(
    ("mistake", "scenario"),
    [
        (Exception, test_a_connection_that_breaks_elects_no_controller),
        (KeyboardInterrupt, test_a_killed_controller_is_replaced_at_once),
    ],
    ids=["reset", "refused"],
)
def test_a_planted_bug_of_voters_is_found(
    mistake: type[BaseException],
    scenario: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A voter that takes each lost connection for a refused one, or none, fails the tests above."""
    monkeypatch.setattr(driver, "ConnectionRefused", mistake)
    with pytest.raises(AssertionError):
        scenario()


@pytest.mark.parametrize(
    ("power", "is_enabled", "is_quick"),
    [(False, True, True), (True, True, False), (False, False, False)],
)
@pytest.mark.parametrize("is_controller", with_soaks([False, True]))
def test_only_a_refused_connection_ends_a_session(
    *, power: bool, is_enabled: bool, is_quick: bool, is_controller: bool
) -> None:
    """A killed process is fenced at once, a lost machine after broker.session.timeout.ms."""
    config = {"broker.failure.detection.enable": str(is_enabled).lower()}
    cluster = SimulatedCluster(5, config=config)

    async def work() -> None:
        await cluster.start()
        active = cluster.active_controller
        assert active is not None
        victim = int(active.config["node.id"]) if is_controller else _standby(cluster)
        took_s = await _fenced_after(cluster, victim, power=power)
        assert (took_s < 1) is is_quick
        if not is_quick:
            assert took_s >= SESSION_S - 2.5  # the last heartbeat was up to an interval before

    cluster.run(work())


def test_a_cut_link_fences_no_broker_early() -> None:
    """Its connections are neither reset nor refused."""
    cluster = SimulatedCluster(6)

    async def work() -> None:
        await cluster.start()
        cut = _standby(cluster)
        started_s = cluster.loop.time()
        cluster.partition([cut], [n for n in (1, 2, 3) if n != cut])
        await until(lambda: _is_fenced(cluster, cut))
        assert cluster.loop.time() - started_s >= SESSION_S - 2.5
        cluster.heal()
        await until(lambda: not _is_fenced(cluster, cut))

    cluster.run(work())


def test_a_connection_that_breaks_fences_no_live_broker() -> None:
    """Its port accepts the controller's connection."""
    cluster = SimulatedCluster(7)

    async def work() -> None:
        await cluster.start()
        for _ in range(5):
            cluster.network.break_links()
            await asyncio.sleep(1)
            assert not any(_is_fenced(cluster, n) for n in (1, 2, 3))

    cluster.run(work())


@pytest.mark.parametrize("allows_unclean", [False, True])
def test_no_unclean_leader_is_elected_before_the_session_would_expire(
    *, allows_unclean: bool
) -> None:
    """The records of a leader that was alone in sync are lost no sooner than on Kafka."""
    cluster = SimulatedCluster(8, nodes=4, roles={4: "broker"})

    async def work() -> None:
        await cluster.start()
        configs = {"unclean.leader.election.enable": str(allows_unclean).lower()}
        async with cluster.admin() as admin:
            assignments = {0: [4, _standby(cluster)]}
            await admin.create_topics([NewTopic("t", assignments=assignments, configs=configs)])
        follower = cluster[_standby(cluster)]
        follower.kill(power=False)
        await until(lambda: _is_fenced(cluster, int(follower.config["node.id"])))
        started_s = cluster.loop.time()
        cluster.kill(4, power=False)
        await until(lambda: _is_fenced(cluster, 4))
        await follower.start()
        await asyncio.sleep(2)
        assert _leader(cluster) == -1
        if allows_unclean:
            await until(lambda: _leader(cluster) >= 0)
            assert cluster.loop.time() - started_s >= SESSION_S - 2.5

    cluster.run(work())


def _leader(cluster: SimulatedCluster) -> int:
    active = cluster.active_controller
    assert active is not None
    assert active.node is not None
    partition = active.node.broker.image.topics.partition("t", 0)
    assert partition is not None
    return partition.leader


def _lost_machine() -> None:
    test_only_a_refused_connection_ends_a_session(
        power=True, is_enabled=True, is_quick=False, is_controller=True
    )


def _killed_process() -> None:
    test_only_a_refused_connection_ends_a_session(
        power=False, is_enabled=True, is_quick=True, is_controller=False
    )


@pytest.mark.soak
@pytest.mark.parametrize(
    ("right", "wrong", "scenario"),
    [
        (ProbeResult.UNKNOWN, ProbeResult.REFUSED, _lost_machine),
        (
            ProbeResult.ACCEPTED,
            ProbeResult.REFUSED,
            test_a_connection_that_breaks_fences_no_live_broker,
        ),
        (ProbeResult.REFUSED, ProbeResult.UNKNOWN, _killed_process),
    ],
    ids=["silent", "reset", "refused"],
)
def test_a_planted_bug_is_found(
    right: ProbeResult,
    wrong: ProbeResult,
    scenario: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A controller that mistakes one kind of connection for another fails the tests above."""

    async def mistaken(*address: Any) -> ProbeResult:
        result = await probe(*address)
        return wrong if result is right else result

    monkeypatch.setattr(schedule, "probe", mistaken)
    with pytest.raises(AssertionError):
        scenario()
