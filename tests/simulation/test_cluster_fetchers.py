"""Whole nodes with several fetchers for each leader."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla import NewTopic, TopicPartition
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.server.broker.replication import fetcher_number
from ottla.testing.simulation import SimulatedCluster

if TYPE_CHECKING:
    from ottla.testing.simulation.node import SimulatedNode

COUNT = 12


@pytest.mark.parametrize(
    ("topic", "numbers"),
    [
        ("t", [0, 1, 2, 3]),
        ("polygenelubricants", [0, 3, 2, 1]),  # the hash is the smallest number of 32 bits
        ("orders", [1, 0, 3, 2]),
    ],
)
def test_partitions_are_shared_out_by_kafkas_hash(topic: str, numbers: list[int]) -> None:
    """AbstractFetcherManager.getFetcherId of partitions 0 to 3, with four fetchers."""
    assert [fetcher_number(TopicPartition(topic, one), 4) for one in range(4)] == numbers


def _numbers(node: SimulatedNode) -> dict[int, int]:
    """Return which fetcher replicates each partition."""
    assert node.node is not None
    leaders = node.node.broker.replication._leaders
    return {
        partition.topic_partition.partition: fetcher.number
        for partition, fetcher in leaders.items()
        if partition.topic_partition.topic == "many"
    }


def _expected(count: int) -> dict[int, int]:
    return {one: fetcher_number(TopicPartition("many", one), count) for one in range(COUNT)}


def test_the_number_of_fetchers_changes_while_they_replicate() -> None:
    """More and fewer; no acknowledgement of all replicas fails, and no record is lost."""
    cluster = SimulatedCluster(1, nodes=2, config={"num.replica.fetchers": "2"})

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            assignments = {one: [1, 2] for one in range(COUNT)}
            await admin.create_topics([NewTopic("many", assignments=assignments)])
            async with cluster.producer(acks="all") as producer:
                for number, fetchers in enumerate((2, 4, 3, 2, 1, 2)):
                    change = {"num.replica.fetchers": fetchers}
                    done = await admin.alter_configs(
                        {ConfigResource(ResourceType.BROKER, ""): change}
                    )
                    assert set(done.values()) == {None}
                    for partition in range(COUNT):
                        await producer.send("many", b"%d" % number, partition=partition)
                    await producer.flush()
                    async with asyncio.timeout(10):
                        while _numbers(cluster[2]) != _expected(fetchers):  # noqa: ASYNC110 - virtual time costs nothing
                            await asyncio.sleep(0.01)
        ends = [
            node.node.broker.replicas.get("many", one).log.log_end_offset
            for node in cluster
            if node.node is not None
            for one in range(COUNT)
        ]
        assert ends == [6] * 2 * COUNT
        await cluster.stop()

    cluster.run(work())
