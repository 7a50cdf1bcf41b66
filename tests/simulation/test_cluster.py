"""Whole nodes that form one cluster: the quorum, requests from any broker, controllers that die."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla import NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.testing.simulation import SimulatedCluster
from tests.soaks import with_soaks
from tests.waits import until

if TYPE_CHECKING:
    from ottla.testing.simulation.node import SimulatedNode


def _topics(node: SimulatedNode) -> set[str]:
    assert node.node is not None
    return set(node.node.broker.image.topics.by_name)


def test_three_nodes_form_a_cluster() -> None:
    """One controller is active, all brokers are known everywhere; no second is needed."""
    cluster = SimulatedCluster(1)

    async def work() -> None:
        begun_us = cluster.loop.now_us
        await cluster.start()
        assert cluster.loop.now_us - begun_us < 3_000_000
        assert sum(one.node is not None and one.node.controller.active for one in cluster) == 1
        async with cluster.admin() as admin:
            described = await admin.describe_cluster()
        assert [one.node_id for one in described.brokers] == [1, 2, 3]
        await cluster.stop()

    cluster.run(work())


def test_a_node_without_a_quorum_stops_after_the_time_of_an_election() -> None:
    """No controller can agree to its controlled shutdown, and none is waited for."""
    cluster = SimulatedCluster(3)

    async def work() -> None:
        await cluster.start()
        for node_id in (1, 2):
            cluster.kill(node_id)
        left = cluster[3].node
        assert left is not None
        await until(lambda: not left.controller.quorum.has_leader)
        begun_us = cluster.loop.now_us
        await cluster[3].stop()
        assert 1_000_000 <= cluster.loop.now_us - begun_us < 2_500_000

    cluster.run(work())


@pytest.mark.parametrize("asked", with_soaks([1, 2, 3]))
def test_every_broker_forwards_to_the_active_controller(asked: int) -> None:
    """Creation, refusal and description are the same whichever broker a client asks."""
    cluster = SimulatedCluster(2)

    async def work() -> None:
        await cluster.start()
        async with cluster[asked].admin() as admin:
            await admin.create_topics(["created"])
            await until(lambda: all("created" in _topics(one) for one in cluster))
            refused = await admin.create_topics(["created"])
            error = refused["created"]
            assert isinstance(error, KafkaError)
            assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        await cluster.stop()

    cluster.run(work())


@pytest.mark.parametrize("power", with_soaks([False, True]))
def test_another_controller_takes_over(power: bool) -> None:  # noqa: FBT001 - parametrized
    """What was created before is there; a client that asks meanwhile waits for the next leader."""
    cluster = SimulatedCluster(3)

    async def work() -> None:
        await cluster.start()
        first = cluster.active_controller
        assert first is not None
        others = [one for one in cluster if one is not first]
        async with others[0].admin() as admin:
            await admin.create_topics(["before"])
            first.kill(power=power)
            await admin.create_topics(["after"])
            await until(lambda: all({"before", "after"} <= _topics(one) for one in others))
            await first.start()
            await until(lambda: {"before", "after"} <= _topics(first))
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_brokers_turn_to_the_next_controller_before_their_sessions_end() -> None:
    """A heartbeat to a controller that does not answer is given up after half of the session."""
    cluster = SimulatedCluster(3)

    async def work() -> None:
        await cluster.start()
        first = cluster.active_controller
        assert first is not None
        numbers = [number for number in (1, 2, 3) if cluster[number] is not first]
        async with cluster[numbers[0]].admin() as admin:
            cluster.partition([6 - sum(numbers)], numbers)
            for _ in range(20):
                await asyncio.sleep(1)
                described = await admin.describe_cluster()
                assert {one.node_id for one in described.brokers} >= set(numbers)
        cluster.heal()
        await cluster.stop()

    cluster.run(work())


def test_controllers_and_brokers_are_nodes_of_their_own() -> None:
    """A broker observes the quorum and forwards; a controller has no partitions."""
    roles = {1: "controller", 2: "broker", 3: "broker"}
    cluster = SimulatedCluster(5, roles=roles)

    async def work() -> None:
        await cluster.start()
        assert cluster.active_controller is cluster[1]
        async with cluster.admin() as admin:
            described = await admin.describe_cluster()
            assert [one.node_id for one in described.brokers] == [2, 3]
            await admin.create_topics([NewTopic("one", 4)])
            await until(lambda: all("one" in _topics(one) for one in cluster))
        counts = {
            one.config["node.id"]: len(one.node.broker.replicas) for one in cluster if one.node
        }
        assert counts["1"] == 0
        assert counts["2"] + counts["3"] == 4
        async with cluster.producer() as producer:
            for number in range(20):
                await producer.send("one", b"%d" % number)
        await cluster.stop()

    cluster.run(work())


@pytest.mark.soak
def test_the_same_seed_gives_the_same_trace() -> None:
    """Also with three nodes."""

    def digest() -> str:
        cluster = SimulatedCluster(4)

        async def work() -> None:
            await cluster.start()
            async with cluster.admin() as admin:
                await admin.create_topics(["one"])
            await cluster.stop()

        cluster.run(work())
        return cluster.trace.digest()

    assert digest() == digest()


def test_a_controller_that_is_cut_off_is_replaced() -> None:
    """It learns of the new one when the links are healed; what it was told meanwhile is undone."""
    cluster = SimulatedCluster(5)

    async def work() -> None:
        await cluster.start()
        first = cluster.active_controller
        assert first is not None
        assert first.node is not None
        number = first.node.config.node_id
        others = [one for one in (1, 2, 3) if one != number]
        cluster.partition([number], others)
        controllers = [cluster[one].node for one in others]
        await until(lambda: any(one is not None and one.controller.active for one in controllers))
        async with cluster[others[0]].admin() as admin:
            await admin.create_topics(["meanwhile"])
        cluster.heal()
        await until(lambda: "meanwhile" in _topics(first))
        assert not first.node.controller.active
        cluster.drop(1, 2)
        await cluster.stop()

    cluster.run(work())


def test_a_link_may_be_cut_one_way() -> None:
    """Requests arrive, responses do not; a connection to a node that is cut off waits."""
    cluster = SimulatedCluster(6)

    async def work() -> None:
        await cluster.start()
        async with cluster[1].admin() as admin:
            await admin.create_topics(["connected"])
            cluster.cut(1, "clients", one_way=True)
            creating = asyncio.create_task(admin.create_topics(["arrived"]))
            await until(lambda: "arrived" in _topics(cluster[2]))
            assert not creating.done()
            cluster.heal()
            await creating
        await cluster.stop(3)
        await cluster.start(3)
        await cluster.stop()

    cluster.run(work())


def digest_with_faults() -> str:
    """Cut links, cut the power, heal; return the digest of all events."""
    cluster = SimulatedCluster(8)

    async def work() -> None:
        await cluster.start()
        cluster.partition([1], [2, 3])
        await asyncio.sleep(3)
        cluster.kill(2, power=True)
        cluster.heal()
        await cluster.start(2)
        await cluster.stop()

    cluster.run(work())
    return cluster.trace.digest()


@pytest.mark.soak
def test_the_same_faults_give_the_same_trace_whatever_the_order_of_sets() -> None:
    """In another process, texts have other hashes."""
    code = (
        "from tests.simulation.test_cluster import digest_with_faults; print(digest_with_faults())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.strip() == digest_with_faults()
