"""`python -m tests.simulation.cluster_seeds FIRST-LAST`: whole clusters that lose nodes.

Three whole nodes, replicated partitions, a native producer with acks=all and
min.insync.replicas=2. Nodes are killed, stop and start again, also two at a time; one loses power
when all replicas are in sync: what lay only on nodes that lost it is lost in Kafka, too.
In the end all nodes run: every acknowledged record lies at its offset, in every replica, and all
replicas are the same. `scripts/simulate --cluster` calls it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
import zlib
from random import Random
from typing import TYPE_CHECKING

from ottla import NewTopic
from ottla.errors import KafkaError
from ottla.records.batches import iterate_batches
from ottla.testing.disk import SimulatedCrash
from ottla.testing.simulation import SimulatedCluster
from ottla.types import FileSlice

if TYPE_CHECKING:
    from ottla.clients.producer.producer import AsyncProducer
    from ottla.replication.partition import Partition
    from ottla.testing.simulation.node import SimulatedNode

TOPIC, PARTITIONS = "kept", 3
SETTINGS = {
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.fetch.backoff.ms": "200",
    "offsets.topic.num.partitions": "1",
}
HEALED_S = 120.0
_READ_BYTES = 1 << 24


class ClusterFailed(AssertionError):
    """An invariant does not hold; the text has the command that replays it."""

    def __init__(self, seed: int, error: BaseException) -> None:
        super().__init__(
            f"seed {seed}: {type(error).__name__}: {error}; "
            f"scripts/simulate --cluster --seeds {seed}-{seed}"
        )


class ClusterRun:
    """One seed: the work, the faults, and what must hold in the end."""

    def __init__(self, seed: int, *, rounds: int = 6) -> None:
        self.seed = seed
        self.rng = Random(f"{seed}/faults")
        self.cluster = SimulatedCluster(seed, config=SETTINGS)
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.sent = 0
        self._rounds = rounds
        self._is_over = False
        self._starts: list[asyncio.Task[None]] = []
        """Kept: a loop forgets tasks that nothing refers to."""

    def run(self) -> ClusterRun:
        """Run to the end; ClusterFailed when something does not hold."""
        try:
            self.cluster.run(self._run())
        except Exception as error:
            raise ClusterFailed(self.seed, error) from error
        return self

    async def _run(self) -> None:
        await self.cluster.start()
        async with self.cluster.admin() as admin:
            configs = {"min.insync.replicas": "2"}
            await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, configs=configs)])
        async with self.cluster.producer(acks="all", delivery_timeout_ms=60_000) as producer:
            work = self.cluster.loop.create_task(self._produce(producer))
            for _ in range(self._rounds):
                await self._fault()
            self._is_over = True
            await self._heal()
            await work
        await self._check()
        for node in self.cluster:
            node.kill(power=False)

    async def _produce(self, producer: AsyncProducer) -> None:
        """Send one record after the other to all partitions; note what is acknowledged."""
        rng = Random(f"{self.seed}/work")
        while not self._is_over:
            waits = []
            for _ in range(rng.randrange(1, 20)):
                value, partition = b"%d" % self.sent, self.sent % PARTITIONS
                self.sent += 1
                waits.append((value, await producer.send(TOPIC, value, partition=partition)))
            for value, wait in waits:
                try:
                    placed = await wait
                except KafkaError:  # not acknowledged: it may be there or not
                    continue
                self.acknowledged[placed.partition, placed.offset] = value
            await asyncio.sleep(rng.random() * 0.2)

    async def _fault(self) -> None:
        """Take one or two nodes down in some way, and back after a while."""
        rng = self.rng
        await asyncio.sleep(rng.random() * 4)
        victims = rng.sample(list(self.cluster), 2 if rng.random() < 0.25 else 1)
        for victim in victims:
            await self._take_down(victim)
            await asyncio.sleep(rng.random() * rng.choice((0.01, 1, 5)))
        await asyncio.sleep(rng.random() * rng.choice((0.2, 2, 8)))
        for victim in victims:
            self._start(victim)

    async def _take_down(self, victim: SimulatedNode) -> None:
        if not victim.is_alive:
            return
        kind = self.rng.choice(("kill", "kill", "power", "stop"))
        if kind == "power" and not self._is_in_sync():
            kind = "kill"  # what only nodes without power had is lost in Kafka, too
        if kind != "stop":
            victim.kill(power=kind == "power")
            return
        try:
            async with asyncio.timeout(30):
                await victim.stop()
        except SimulatedCrash:
            return

    def _start(self, victim: SimulatedNode) -> None:
        """Begin to start; without a majority a start waits for the others."""
        if not victim.is_alive:
            self._starts.append(self.cluster.loop.create_task(self._started(victim)))

    async def _started(self, victim: SimulatedNode) -> None:
        try:
            await victim.start()
        except (SimulatedCrash, KafkaError):  # it was taken down again, or no majority came
            victim.kill(power=False)

    async def _heal(self) -> None:
        """Start every node; wait until all replicas are in sync."""
        async with asyncio.timeout(HEALED_S):
            while not self._is_in_sync():
                for node in self.cluster:
                    self._start(node)
                await asyncio.sleep(0.5)

    def _is_in_sync(self) -> bool:
        if not all(one.is_alive and one.node is not None for one in self.cluster):
            return False
        for index in range(PARTITIONS):
            found = [self._replica(one, index) for one in self.cluster]
            led = [one for one in found if one is not None and one.is_leader]
            if None in found or len(led) != 1 or len(led[0].isr) != len(found):
                return False
        return True

    def _replica(self, node: SimulatedNode, index: int) -> Partition | None:
        return None if node.node is None else node.node.broker.replicas.find(TOPIC, index)

    # In the end

    async def _check(self) -> None:
        for index in range(PARTITIONS):
            async with asyncio.timeout(HEALED_S):
                while len({self._ends(node, index) for node in self.cluster}) > 1:  # noqa: ASYNC110 - virtual time costs nothing
                    await asyncio.sleep(0.1)
            contents = [self._records(node, index) for node in self.cluster]
            assert all(one == contents[0] for one in contents), f"replicas of {index} differ"
            self._check_acknowledged(index, contents[0])
        assert self.acknowledged, "nothing was acknowledged"

    def _ends(self, node: SimulatedNode, index: int) -> tuple[int, int]:
        replica = self._replica(node, index)
        assert replica is not None
        return replica.log.log_end_offset, replica.log.high_watermark

    def _records(self, node: SimulatedNode, index: int) -> list[tuple[int, int, bytes]]:
        """Return offset, epoch and value of all records of a replica."""
        replica = self._replica(node, index)
        assert replica is not None
        data = replica.log.reads.read(replica.log.log_start_offset, _READ_BYTES)[0]
        view = data.read() if isinstance(data, FileSlice) else data
        return [
            (record.offset, batch.leader_epoch, bytes(record.value or b""))
            for batch in iterate_batches(view)
            for record in batch.records()
        ]

    def _check_acknowledged(self, index: int, records: list[tuple[int, int, bytes]]) -> None:
        found = {offset: value for offset, _, value in records}
        for (partition, offset), value in self.acknowledged.items():
            if partition == index:
                assert found.get(offset) == value, (
                    f"{TOPIC}-{index} at {offset}: {value!r} was acknowledged, "
                    f"{found.get(offset)!r} is there"
                )
        values = [int(value) for _, _, value in records]
        assert values == sorted(set(values)), f"{TOPIC}-{index} has records twice or out of order"


def main() -> int:
    """Run the seeds; return 1 when one fails."""
    parser = argparse.ArgumentParser(prog="scripts/simulate --cluster", description=__doc__)
    parser.add_argument("--seeds", default="0-9", help="FIRST-LAST, the last included")
    first, last = map(int, parser.parse_args().seeds.split("-"))
    logging.disable()
    digest, events, failed, begun = 0, 0, 0, time.perf_counter()
    for seed in range(first, last + 1):
        run = ClusterRun(seed)
        try:
            run.run()
        except ClusterFailed as error:
            failed += 1
            print(error, flush=True)
        digest = zlib.crc32(run.cluster.trace.digest().encode(), digest)
        events += run.cluster.trace.event_count
    elapsed_s = time.perf_counter() - begun
    print(
        f"seeds {first}-{last}: {events:,} events, {failed} failed, "
        f"{events / elapsed_s:,.0f} events/s, digest {digest:08x}"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
