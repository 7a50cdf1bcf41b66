"""Whole nodes that are brokers and voters lose their disks, one after the other, under load.

A voter with new disks has forgotten its votes and records. It is no voter until it joins again,
with the id of its new directory; what was committed stays.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from ottla import NewTopic, TopicPartition
from ottla.errors import KafkaError
from ottla.server.node.format import read_meta_properties
from ottla.testing.simulation import SimulatedCluster
from tests.waits import until

if TYPE_CHECKING:
    from ottla.types import Uuid

SETTINGS: Final = {
    "controller.quorum.auto.join.enable": "true",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "min.insync.replicas": "2",
}
NODES: Final = (1, 2, 3)


class ReplacedVoters:
    """One seed: topics and records are written while one node at a time gets new disks."""

    def __init__(self, seed: int, rounds: int) -> None:
        self._rounds = rounds
        self.rng = Random(f"{seed}/voters")
        self.cluster = SimulatedCluster(seed, nodes=3, config=SETTINGS)
        self.topics: list[str] = []
        """Those whose creation was acknowledged."""
        self.values: set[bytes] = set()
        """Those whose append was acknowledged."""
        self.is_over = False

    async def run(self) -> None:
        """Write under faults, then compare."""
        await self.cluster.start()
        async with self.cluster.admin() as admin:
            await admin.create_topics([NewTopic("t", 1, 3)])
        jobs = [asyncio.ensure_future(one()) for one in (self._create, self._produce)]
        for _ in range(self._rounds):
            await asyncio.sleep(self.rng.uniform(0, 3))
            await self._replace(self.rng.choice(NODES))
        self.is_over = True
        async with asyncio.timeout(120):
            await asyncio.gather(*jobs)
        await until(self._are_equal, 90)
        await self._check()
        await self.cluster.stop()

    async def _replace(self, node_id: int) -> None:
        """Let a node return with new disks, at times while its first start is cut short."""
        former = self._directory(node_id)
        self.cluster.kill(node_id, power=True)
        await asyncio.sleep(self.rng.uniform(0, 6))
        self.cluster.replace_disks(node_id)
        await self.cluster.start(node_id)
        if self.rng.random() < 0.4:
            await asyncio.sleep(self.rng.uniform(0, 2))
            self.cluster.kill(node_id)
            await self.cluster.start(node_id)
        assert self._directory(node_id) != former
        await until(self._is_whole, 90)

    def _raft(self, node_id: int) -> Any:
        node = self.cluster[node_id].node
        assert node is not None
        return node.controller.driver.node

    def _directory(self, node_id: int) -> Uuid:
        """Return the id of the directory that holds its metadata log."""
        disk = next(iter(self.cluster[node_id].disks.values()))
        found = read_meta_properties(disk)
        assert found is not None
        assert found.directory_id is not None
        return found.directory_id

    # Clients

    async def _create(self) -> None:
        async with self.cluster.admin(request_timeout_ms=5000) as admin:
            number = 0
            while not self.is_over:
                number += 1
                name = f"made{number}"
                with suppress(KafkaError):
                    await admin.create_topics([NewTopic(name, 1, 1)])
                    self.topics.append(name)
                await asyncio.sleep(self.rng.random())

    async def _produce(self) -> None:
        number = 0
        async with self.cluster.producer(acks="all", delivery_timeout_ms=60_000) as producer:
            while not self.is_over:
                number += 1
                with suppress(KafkaError):
                    await (await producer.send("t", b"%d" % number))
                    self.values.add(b"%d" % number)
                await asyncio.sleep(self.rng.random() * 0.2)

    # What holds

    def _is_whole(self) -> bool:
        """Whether each node votes with the disks it has now, and holds the partition."""
        if any(not self.cluster[one].is_alive for one in NODES):
            return False
        keys = {(one, self._directory(one)) for one in NODES}
        voters = [{(v.voter_id, v.directory_id) for v in self._raft(one).voters} for one in NODES]
        return all(one == keys for one in voters) and len(self._partition(1).isr) == 3

    def _are_equal(self) -> bool:
        images = [self._image(one) for one in NODES]
        return all(set(one.topics.by_name) == set(images[0].topics.by_name) for one in images)

    def _image(self, node_id: int) -> Any:
        node = self.cluster[node_id].node
        assert node is not None
        return node.broker.image

    def _partition(self, node_id: int) -> Any:
        return self._image(node_id).topics.by_name["t"].partitions[0]

    async def _check(self) -> None:
        """All that was acknowledged is there."""
        for one in NODES:
            names = set(self._image(one).topics.by_name)
            assert names >= set(self.topics)
        async with self.cluster.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            async with asyncio.timeout(60):
                missing = set(self.values)
                while missing:
                    missing -= {one.value for one in await consumer.poll(timeout=1.0)}


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_voters_that_lose_their_disks_join_again(seed: int) -> None:
    """Nothing acknowledged is lost, and three voters are there in the end."""
    run = ReplacedVoters(seed, rounds=4)
    run.cluster.run(run.run())
    assert len(run.topics) > 5
    assert len(run.values) > 20
