"""A share group in clusters over bad days: each record ends once, with one holder at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla import AcknowledgeType, ConfigResource, NewTopic, ResourceType
from ottla.testing.simulation import SimulatedCluster
from tests.simulation.cluster_seeds import run_seed
from tests.simulation.clusters.shares import SETTINGS

if TYPE_CHECKING:
    from ottla import ShareRecord
    from ottla.clients.share.consumer import AsyncShareConsumer

STATES = "__share_group_state"


@pytest.mark.soak
def test_members_of_a_share_group_end_every_record() -> None:
    """Leaders and share coordinators move; members come, go and hold records for too long.

    One round of faults; `.ci/simulations` runs the same seed with eight.
    """
    run = run_seed(2, rounds=1)
    shares = run.shares
    assert shares is not None
    assert len(shares.sent) > 50
    assert shares.counts["ACCEPT"] > 50
    assert shares.counts["commits"] > 20


async def _poll(member: AsyncShareConsumer, count: int) -> list[ShareRecord]:
    """Return so many records; those of one poll, as the next one needs their acknowledgements."""
    async with asyncio.timeout(60):
        while True:
            found = await member.poll(1.0)
            if found:
                assert len(found) == count, found
                return found


def _leader(cluster: SimulatedCluster, topic: str, partition: int) -> int:
    for host in cluster:
        if host.is_alive and host.node is not None:
            found = host.node.broker.image.topics.by_name[topic].partitions[partition].leader
            if cluster[found].is_alive:
                return found
    raise AssertionError(f"no node knows the leader of {topic}-{partition}")


def test_what_is_acknowledged_survives_leaders_and_share_coordinators() -> None:
    """A new leader delivers what was acquired and not acknowledged, counted as before."""
    settings = {
        **SETTINGS,
        "share.coordinator.state.topic.num.partitions": "1",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
    }
    cluster = SimulatedCluster(4, nodes=3, config=settings)

    async def work() -> None:
        await cluster.start()
        group = ConfigResource(ResourceType.GROUP, "g")
        async with cluster.admin() as admin, cluster.producer(acks="all") as producer:
            await admin.create_topics([NewTopic("t", assignments={0: [1, 2, 3]})])
            await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
            await producer.send_many("t", [b"0", b"1", b"2", b"3"])
            await producer.flush()
            async with cluster.share_consumer(
                "t", group_id="g", share_acknowledgement_mode="explicit"
            ) as member:
                first = await _poll(member, 4)
                for record, kind in zip(
                    first,
                    (
                        AcknowledgeType.ACCEPT,
                        AcknowledgeType.RELEASE,
                        AcknowledgeType.RELEASE,
                        AcknowledgeType.REJECT,
                    ),
                    strict=True,
                ):
                    member.acknowledge(record, kind)
                assert set((await member.commit()).values()) == {None}
                held = await _poll(member, 2)
                assert [(one.offset, one.delivery_count) for one in held] == [(1, 2), (2, 2)]
                cluster.kill(1)
                for record in held:
                    member.acknowledge(record)
                lost = await member.commit(timeout=5)
                assert all(error is not None for error in lost.values())
                again = await _poll(member, 2)
                assert [(one.offset, one.delivery_count) for one in again] == [(1, 2), (2, 2)]
                member.acknowledge(again[0])
                member.acknowledge(again[1], AcknowledgeType.RELEASE)
                assert set((await member.commit(timeout=30)).values()) == {None}
                await cluster.start(1)
                await asyncio.sleep(10)
                cluster.kill(_leader(cluster, STATES, 0))
                last = await _poll(member, 1)
                assert [(one.offset, one.delivery_count) for one in last] == [(2, 3)]
                member.acknowledge(last[0])
                assert set((await member.commit(timeout=60)).values()) == {None}
                assert await member.poll(10.0) == []
        for host in cluster:
            host.kill(power=False)

    cluster.run(work())


@pytest.mark.soak
def test_what_could_not_be_stored_is_not_acknowledged() -> None:
    """A leader that reaches no share coordinator fails acknowledgements; the records come again."""
    settings = {
        **SETTINGS,
        "share.coordinator.state.topic.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
    }
    cluster = SimulatedCluster(5, nodes=3, config=settings)

    async def work() -> None:
        await cluster.start()
        group = ConfigResource(ResourceType.GROUP, "g")
        async with cluster.admin() as admin, cluster.producer(acks="all") as producer:
            await admin.create_topics([NewTopic("t", assignments={0: [1]})])
            await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
            await producer.send_many("t", [b"0", b"1"])
            await producer.flush()
            async with cluster.share_consumer(
                "t", group_id="g", share_acknowledgement_mode="explicit", request_timeout_ms=60_000
            ) as member:
                for record in await _poll(member, 2):
                    member.acknowledge(record)
                cluster.cut(1, 2)
                cluster.cut(1, 3)
                lost = await member.commit(timeout=60)
                assert [error is None for error in lost.values()] == [False]
                cluster.heal()
                again = await _poll(member, 2)
                assert [(one.offset, one.delivery_count) for one in again] == [(0, 2), (1, 2)]
                for record in again:
                    member.acknowledge(record)
                assert set((await member.commit(timeout=60)).values()) == {None}
                assert await member.poll(10.0) == []
        for host in cluster:
            host.kill(power=False)

    cluster.run(work())
