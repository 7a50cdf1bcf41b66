"""One seed of a whole cluster: its nodes, its clients, its faults, and what holds in the end."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla import TopicPartition
from ottla.records.batches import iterate_batches
from ottla.server.broker.topic_auto_creation import OFFSETS_TOPIC
from ottla.testing.simulation import SimulatedCluster
from tests.simulation.clusters.bounds import Bounds
from tests.simulation.clusters.bug_reports import BugReports
from tests.simulation.clusters.checks import ClusterChecks
from tests.simulation.clusters.coordinators import CoordinatorMoves, has_moves
from tests.simulation.clusters.faults import ClusterFaults, raise_failure
from tests.simulation.clusters.members import SETTINGS as MEMBER_SETTINGS
from tests.simulation.clusters.members import MemberWork, has_members
from tests.simulation.clusters.shares import SETTINGS as SHARE_SETTINGS
from tests.simulation.clusters.shares import ShareWork, has_shares
from tests.simulation.clusters.sizes import oversized
from tests.simulation.clusters.streams import SETTINGS as STREAMS_SETTINGS
from tests.simulation.clusters.streams import StreamsWork, has_streams
from tests.simulation.clusters.transactions import SETTINGS as TRANSACTION_SETTINGS
from tests.simulation.clusters.transactions import (
    TransactionWork,
    feature_levels,
    has_transactions,
)
from tests.simulation.clusters.work import KEPT, ClusterWork
from tests.simulation.clusters.work_costs import charged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.records.record import Record
    from ottla.replication.partition import Partition
    from ottla.testing.simulation.node import SimulatedNode

SETTINGS = {
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.fetch.backoff.ms": "200",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}
HEALED_S = 120.0
FAULTS_S = 900.0
"""Virtual time that faults and recovery take at most; some 20 to 80 s is usual."""
ROUNDS = 8
_TWO_DIRECTORIES = {"log.dirs": "/data,/more"}
_SMALL_SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.retention.bytes": "12000",
}
_SMALLEST_SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "400",
}
_SMALL_SEGMENTS = {
    "log.roll.ms": "2000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.retention.check.interval.ms": "3000",
    "log.segment.delete.delay.ms": "1000",
}


class Layout(NamedTuple):
    """How many nodes, and which are not broker and controller."""

    nodes: int
    controllers: int = 0
    brokers: int = 0

    @property
    def roles(self) -> dict[int, str]:
        """process.roles by node: the first ones are controllers only, the last brokers only."""
        first_broker = self.nodes - self.brokers + 1
        return {
            **dict.fromkeys(range(1, self.controllers + 1), "controller"),
            **dict.fromkeys(range(first_broker, self.nodes + 1), "broker"),
        }


LAYOUTS = (
    Layout(3),
    Layout(4),
    Layout(5, brokers=2),
    Layout(3),
    Layout(6, controllers=3, brokers=3),
    Layout(5),
    Layout(4, controllers=1, brokers=3),
    Layout(7, controllers=2, brokers=2),
)


_SETTINGS_OF_CLIENTS = (
    (has_transactions, TRANSACTION_SETTINGS),
    (has_shares, SHARE_SETTINGS),
    (has_members, MEMBER_SETTINGS),
    (has_streams, STREAMS_SETTINGS),
)


class ClusterRun:
    """A seed decides all of it; `run` raises AssertionError when something does not hold."""

    def __init__(self, seed: int, *, rounds: int = ROUNDS, lasting: bool = False) -> None:
        """With lasting, faults that last are among the others, with bounds after them."""
        self.seed = seed
        self._rounds = rounds
        layout = LAYOUTS[seed % len(LAYOUTS)]
        settings = dict(SETTINGS)
        if seed % 4 == 1:
            settings |= _TWO_DIRECTORIES
        if seed % 3 == 0:
            settings |= _SMALLEST_SNAPSHOTS if seed % 2 else _SMALL_SNAPSHOTS
        if seed % 5 in {2, 4}:
            settings |= _SMALL_SEGMENTS
        for has, own in _SETTINGS_OF_CLIENTS:
            settings |= own if has(seed) else {}
        self.cluster = SimulatedCluster(
            seed,
            nodes=layout.nodes,
            roles=layout.roles,
            config=settings,
            feature_levels=feature_levels(seed),
        )
        for number in range(1, layout.nodes + 1) if has_transactions(seed) else ():
            self.cluster[number].config["broker.rack"] = f"rack{(number - 1) % 3 + 1}"
        self.checks = ClusterChecks(self.cluster, seed)
        self.bug_reports = BugReports()
        self.work = ClusterWork(seed, self.cluster, self.checks, changes_what_runs=lasting)
        self.transactions: TransactionWork | None = None
        if has_transactions(seed):
            self.transactions = TransactionWork(seed, self.cluster, self.checks)
        self.shares: ShareWork | None = None
        if has_shares(seed):
            self.shares = ShareWork(seed, self.cluster)
        self.members = MemberWork(seed, self.cluster) if has_members(seed) else None
        self.streams = StreamsWork(seed, self.cluster) if has_streams(seed) else None
        self.moves = CoordinatorMoves(seed, self.cluster) if has_moves(seed) else None
        bounds = None
        if lasting:
            bounds = Bounds(self.cluster, self.work, Random(f"{seed}/bounds"))
        self.faults = ClusterFaults(seed, self.cluster, bounds)

    @property
    def events(self) -> int:
        """Events so far."""
        return self.cluster.trace.event_count

    def run(self) -> ClusterRun:
        """Run to the end."""
        checks = self.checks
        with (
            checks.served.watching(),
            checks.markers.watching(),
            self.bug_reports.watching(),
            nullcontext() if self.shares is None else self.shares.checks.watching(),
            nullcontext() if self.members is None else self.members.checks.watching(),
            nullcontext() if self.streams is None else self.streams.checks.watching(),
            charged(self.cluster.loop),
        ):
            self.cluster.run(self._run())
        self.bug_reports.check()
        return self

    async def _run(self) -> None:
        await self.cluster.start()
        await self.work.create()
        loop = self.cluster.loop
        jobs = [loop.create_task(job) for job in self.work.jobs()]
        for one in self._clients():
            await one.create()
            jobs += [loop.create_task(job) for job in one.jobs()]
        for job in jobs:
            job.add_done_callback(raise_failure)
        administering = loop.create_task(self.work.administer())
        administering.add_done_callback(raise_failure)
        async with asyncio.timeout(FAULTS_S):
            await self.faults.run(self._rounds)
            self.work.is_calm = True
            await administering
        self.work.is_over = True
        for one in self._clients():
            one.is_over = True
        await self._until(self._is_in_sync, "not all replicas are in sync")
        await self._until(lambda: all(job.done() for job in jobs), "clients are not done")
        await self._serve_again()
        await self._lose_one()
        await self._until(self._is_in_sync, "not all replicas are in sync")
        await self._until(self._is_decided, "transactions are open")
        await self._until(self._is_equal, "replicas differ")
        await self._until(lambda: not oversized(self.cluster), "queues or snapshots are too large")
        self._check_contents()
        self.cluster.loop.on_turn = None
        for host in self.cluster:
            host.kill(power=False)

    def _clients(
        self,
    ) -> list[TransactionWork | ShareWork | MemberWork | StreamsWork | CoordinatorMoves]:
        """Return the clients that only some seeds have."""
        found = (self.transactions, self.shares, self.members, self.streams, self.moves)
        return [one for one in found if one is not None]

    async def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        try:
            async with asyncio.timeout(HEALED_S):
                while not holds():  # noqa: ASYNC110 - virtual time costs nothing
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"{otherwise} {HEALED_S:.0f} s after the last fault") from None

    async def _serve_again(self) -> None:
        """Create a topic, write and read it: a cluster without faults serves."""
        async with asyncio.timeout(HEALED_S):
            async with self.cluster.admin() as admin:
                await admin.create_topic("again", 2, 3)
            async with self.cluster.producer(acks="all") as producer:
                await producer.send_and_wait("again", b"one")
            async with self.cluster.consumer(auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition("again", index) for index in range(2)])
                while not await consumer.poll(timeout=1.0):
                    pass

    async def _lose_one(self) -> None:
        """Kill a node: the others lead and acknowledge; then start it again."""
        victim = self.faults.rng.choice(list(self.cluster))
        victim.kill(power=False)
        async with asyncio.timeout(HEALED_S), self.cluster.producer(acks="all") as producer:
            for topic, index in self.work.partitions():
                await self.work.send_one(producer, topic, index)
        await victim.start()

    # In the end

    def _partitions(self) -> Iterator[tuple[SimulatedNode, Partition]]:
        for host in self.cluster:
            assert host.node is not None
            for partition in host.node.broker.replicas:
                yield host, partition

    def _is_in_sync(self) -> bool:
        images = [one.node.broker.image for one in self.cluster if one.node is not None]
        if len({image.offset_and_epoch for image in images}) > 1:
            return False
        registered = sum(
            len(found.replicas)
            for topic in images[0].topics.by_name.values()
            for found in topic.partitions.values()
            if set(found.isr) == set(found.replicas)
            and found.has_leader
            and not found.is_reassigning
        )
        expected = sum(
            len(found.replicas)
            for topic in images[0].topics.by_name.values()
            for found in topic.partitions.values()
        )
        return registered == expected == sum(1 for _ in self._partitions())

    def _is_decided(self) -> bool:
        """Whether no transaction is open: those that a client left are aborted in time."""
        logs = [one.log for _, one in self._partitions() if one.is_leader]
        return all(one.last_stable_offset == one.log_end_offset for one in logs)

    def _is_equal(self) -> bool:
        """Whether each replica ends with what is committed; what is below was compared."""
        starts: dict[Any, int] = {}
        for _, partition in self._partitions():
            log, known = partition.log, self.checks.log_of(partition)
            if not log.log_end_offset == log.high_watermark == known.end_offset:
                return False
            if partition.is_leader:
                starts[partition.topic_partition] = log.log_start_offset
        return all(
            partition.log.log_start_offset >= starts.get(partition.topic_partition, 0)
            for _, partition in self._partitions()
        )

    def _check_contents(self) -> None:
        for view in self.checks.views:
            self.checks.compare_image(view)
            self.checks.compare_controller(view)
        self.checks.coordinators.check_all(self.checks.views)
        found: dict[tuple[str, int], dict[int, bytes]] = {}
        for _, partition in self._partitions():
            key = partition.topic_partition
            _check_bytes(partition)
            if key not in found:
                records = list(_records(partition))
                found[key] = {one.offset: bytes(one.value or b"") for one in records}
        assert self.work.acknowledged, "nothing was acknowledged"
        for (topic, index, offset), value in self.work.acknowledged.items():
            if offset < self.work.deleted.get(TopicPartition(topic, index), 0):
                continue
            there = found[topic, index].get(offset)
            assert there == value, (
                f"{topic}-{index} at {offset}: {value!r} was acknowledged, {there!r} is there"
            )
        self._check_producers()
        self._check_clients()
        for (topic, index), stored in found.items():
            if topic == KEPT:
                self._check_order(f"{topic}-{index}", list(stored.values()))

    def _check_clients(self) -> None:
        if self.transactions is not None:
            self.transactions.check()
        if self.shares is not None:
            self.shares.check()
        if self.members is not None:
            self.members.check(self._records_of(OFFSETS_TOPIC))
        if self.streams is not None:
            self.streams.check()

    def _records_of(self, topic: str) -> Iterator[Record]:
        """Return the records of a replica of a topic of one partition, which all are equal."""
        for _, partition in self._partitions():
            if partition.topic_partition.topic == topic:
                return _records(partition)
        raise AssertionError(f"no node has a replica of {topic}")

    def _check_producers(self) -> None:
        """Check that equal logs know the same of their producers."""
        known: dict[tuple[str, int], dict[int, tuple[int, ...]]] = {}
        for host, partition in self._partitions():
            if partition.topic_partition.topic != KEPT:  # the start of the others differs
                continue
            entries: dict[int, tuple[int, ...]] = {
                entry.producer_id: (entry.producer_epoch, *entry.batches[-1][:2])
                for entry in partition.log.producer_state.producers.values()
                if entry.batches
            }
            first = known.setdefault(partition.topic_partition, entries)
            assert first == entries, (
                f"{host.host} has the producers {entries} of {partition.topic_partition}, another "
                f"replica {first}"
            )

    def _check_order(self, name: str, values: list[bytes]) -> None:
        """Check that each idempotent producer's records are there once and in order."""
        last: dict[int, int] = {}
        assert len(set(values)) == len(values), f"{name} has records twice"
        for value in values:
            producer = self.work.producers.get(value, 0)
            before = last.get(producer, -1)
            assert int(value) > before, f"{name} has {value!r} after {before}"
            last[producer] = int(value)


def _check_bytes(partition: Partition) -> None:
    """Check the checksum of each batch of a replica: none has copied damage."""
    for segment in partition.log.segments:
        data = segment.file._content.data  # type: ignore[attr-defined] # a SimulatedFile
        for batch in iterate_batches(bytes(data[: segment.size])):
            batch.check_crc()


def _records(partition: Partition) -> Iterator[Record]:
    """Yield all records of a replica, without file operations."""
    for segment in partition.log.segments:
        data = segment.file._content.data  # type: ignore[attr-defined] # a SimulatedFile
        for batch in iterate_batches(bytes(data[: segment.size])):
            yield from batch.records()
