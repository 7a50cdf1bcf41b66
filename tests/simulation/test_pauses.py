"""A process that is stopped as by SIGSTOP, or whose machine is frozen, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from ottla import NewTopic
from ottla.testing.simulation import SimulatedCluster
from ottla.testing.simulation.loop import LongTurn


def test_a_paused_leader_is_replaced_and_follows_when_it_goes_on() -> None:
    """Its connections stay open; it learns late that another one leads."""
    cluster = SimulatedCluster(31, config={"broker.session.timeout.ms": "3000"})

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin, cluster.producer(acks="all") as producer:
            await admin.create_topics([NewTopic("t", assignments={0: [1, 2, 3]})])
            await producer.send_and_wait("t", b"before")
            cluster.pause(1)
            placed = await producer.send_and_wait("t", b"meanwhile")
            assert placed.offset == 1
            assert cluster[1].is_alive
            cluster.resume(1)
            async with asyncio.timeout(20):
                while not _is_follower(cluster):  # noqa: ASYNC110 - virtual time costs nothing
                    await asyncio.sleep(0.1)

    cluster.run(work())


def _is_follower(cluster: SimulatedCluster) -> bool:
    node = cluster[1].node
    assert node is not None
    found = node.broker.replicas.find("t", 0)
    return found is not None and not found.is_leader and found.log.log_end_offset == 2


def test_a_long_turn_fails_a_run() -> None:
    """Work that is charged to one turn of a node beyond the limit is reported with its parts."""
    cluster = SimulatedCluster(32, nodes=1)
    cluster.loop.turn_limit_us = 10_000

    async def work() -> None:
        await cluster.start()
        process = cluster[1].process
        assert process is not None

        def compute() -> None:
            for _ in range(11):
                cluster.loop.charge("sums", 1_000_000)

        cluster.loop.call_soon(compute, context=process.context())
        await asyncio.sleep(1)

    with pytest.raises(LongTurn, match="11 sums 11000 us"):
        cluster.run(work())
