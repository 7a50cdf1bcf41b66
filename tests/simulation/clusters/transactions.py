"""Transactional clients of a cluster: writers, zombies, copiers and readers of what is committed.

Writers send to several partitions in a transaction, which they commit, abort, leave open beyond
its timeout, or lose to another producer with the same transactional id. Copiers read what is
committed and write it to a second topic, in transactions with their offsets.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from ottla import AbortableTransactionError, TopicPartition
from ottla.errors import ErrorCode, KafkaError
from tests.simulation.clusters.markers import compare_live

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from ottla.clients.consumer.consumer import AsyncConsumer
    from ottla.clients.producer.producer import AsyncProducer
    from ottla.testing.simulation import SimulatedCluster
    from tests.simulation.clusters.checks import ClusterChecks

ENTRIES, COPIES = "entries", "copies"
COUNT = 2
"""Partitions of each."""
NEAR_READERS = 2
SETTINGS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "request.timeout.ms": "3000",
}
TIMEOUT_MS = 4000
_GROUP = "copiers"
_COMPARED_S = 2.0
_MAX_LIFE_S = 20.0


def has_transactions(seed: int) -> bool:
    """Whether a seed has these clients; layouts and settings repeat at 8, 4, 3 and 5."""
    return seed % 7 in {1, 3, 5}


def feature_levels(seed: int) -> dict[str, int]:
    """Return transaction.version: 2 in most seeds, and each of the older ones in some."""
    return {"transaction.version": {2: 0, 6: 1}.get(seed % 9, 2)}


class Outcome(Enum):
    """What a client knows of a transaction."""

    NEVER_COMMITTED = "aborted, or fenced before the commit"
    COMMITTED = "committed"
    UNKNOWN = "unknown"


class Attempt:
    """A transaction of a writer."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.outcome = Outcome.NEVER_COMMITTED


class TransactionWork:
    """What transactional clients do and learn; `is_over` ends it."""

    def __init__(self, seed: int, cluster: SimulatedCluster, checks: ClusterChecks) -> None:
        self.cluster = cluster
        self.rng = Random(f"{seed}/transactions")
        self.checks = checks
        self.attempts: list[Attempt] = []
        self.read: dict[tuple[str, int], list[bytes]] = {
            (topic, index): [] for topic in (ENTRIES, COPIES) for index in range(COUNT)
        }
        """What is committed, as the reader got it."""
        self.near: dict[str, dict[tuple[str, int], list[bytes]]] = {}
        """The same by rack, as readers got it from the replicas there (KIP-392)."""
        self.is_over = False
        self.counts: dict[str, int] = {}
        self._writing = 0
        self._sent = 0
        self._has_read_all = False
        self._states_compared = 0

    async def create(self) -> None:
        """Create the topics."""
        async with self.cluster.admin() as admin:
            for name in (ENTRIES, COPIES):
                await admin.create_topic(name, COUNT, 3, if_not_exists=True)

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """Return what is to run until `is_over`."""
        self._writing = 2
        return [
            self._write("writer-0"),
            self._write("writer-1"),
            self._copy("copier-0"),
            self._copy("copier-1"),
            self._read(),
            self._compare(),
            *(self._read_near(f"rack{one}") for one in self.rng.sample(range(1, 4), NEAR_READERS)),
        ]

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _producer(self, name: str) -> AsyncProducer:
        return self.cluster.producer(
            transactional_id=name,
            transaction_timeout_ms=TIMEOUT_MS,
            delivery_timeout_ms=20_000,
            request_timeout_ms=8_000,
            max_block_ms=15_000,
        )

    def _lasts_until(self) -> float:
        return self.cluster.loop.time() + self.rng.random() * _MAX_LIFE_S

    # Writers

    async def _write(self, name: str) -> None:
        """Write with one producer after the other; each fences the one before."""
        while not self.is_over:
            lasts_s = self._lasts_until()
            with suppress(KafkaError):
                async with self._producer(name) as producer:
                    await producer.init_transactions()
                    while self.cluster.loop.time() < lasts_s and not self.is_over:
                        await self._transact(name, producer)
                        await asyncio.sleep(self.rng.random() * 0.5)
            await asyncio.sleep(0.1)
        self._writing -= 1

    async def _transact(self, name: str, producer: AsyncProducer) -> None:
        attempt = Attempt()
        self.attempts.append(attempt)
        await producer.begin_transaction()
        try:
            for _ in range(self.rng.randrange(1, 6)):
                value = b"%d" % self._sent
                self._sent += 1
                attempt.values.append(value)
                await producer.send(ENTRIES, value, partition=self.rng.randrange(COUNT))
            await self._end(name, producer, attempt)
        except AbortableTransactionError:
            await producer.abort_transaction()
            self._count("aborted after an error")

    async def _end(self, name: str, producer: AsyncProducer, attempt: Attempt) -> None:
        kind = self.rng.random()
        if kind < 0.15:
            await producer.abort_transaction()
            self._count("aborted")
        elif kind < 0.2:
            await producer.flush()
            await asyncio.sleep(self.rng.random() * 3 * TIMEOUT_MS / 1000)
            await self._commit(producer, attempt)
            self._count("idle")
        elif kind < 0.3:
            await self._lose(name, producer, attempt)
        else:
            await self._commit(producer, attempt)

    async def _commit(self, producer: AsyncProducer, attempt: Attempt) -> None:
        attempt.outcome = Outcome.UNKNOWN
        try:
            await producer.commit_transaction()
        except TimeoutError:
            self._count("commits without an answer")
            await producer.commit_transaction()
        attempt.outcome = Outcome.COMMITTED
        self._count("committed")

    async def _lose(self, name: str, producer: AsyncProducer, attempt: Attempt) -> None:
        """Let another producer have the id: this one's transaction must never be committed."""
        await producer.flush()
        async with self._producer(name) as other:
            await other.init_transactions()
            self._count("zombies")
            try:
                await producer.commit_transaction()
            except KafkaError:
                pass
            else:
                raise AssertionError(f"a zombie of {name} commits {attempt.values}")
            if self.rng.random() < 0.5:
                await self._transact(name, other)

    # Copiers

    def _is_copied(self) -> bool:
        return (
            self.is_over
            and self._writing == 0
            and self._has_read_all
            and self._total(ENTRIES) == self._total(COPIES)
        )

    def _total(self, topic: str) -> int:
        return sum(len(self.read[topic, index]) for index in range(COUNT))

    async def _copy(self, name: str) -> None:
        """Copy as a member of the group, with one consumer and producer after the other."""
        while not self._is_copied():
            lasts_s = self._lasts_until()
            with suppress(KafkaError):
                async with self._producer(name) as producer, self._member() as consumer:
                    await producer.init_transactions()
                    while self.cluster.loop.time() < lasts_s and not self._is_copied():
                        await self._copy_some(producer, consumer)
            await asyncio.sleep(0.1)

    def _member(self) -> AsyncConsumer:
        return self.cluster.consumer(
            ENTRIES,
            group_id=_GROUP,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            max_poll_interval_ms=7000,
        )

    async def _copy_some(self, producer: AsyncProducer, consumer: AsyncConsumer) -> None:
        polled = await consumer.poll(timeout=0.5)
        if not polled:
            return
        if self.rng.random() < 0.05:
            await asyncio.sleep(self.rng.random() * 12)  # others may have its partitions then
        await producer.begin_transaction()
        for one in polled:
            await producer.send(COPIES, one.value, partition=one.partition)
        ends = {TopicPartition(one.topic, one.partition): one.offset + 1 for one in polled}
        await producer.send_offsets_to_transaction(ends, consumer.group_metadata())
        if self.rng.random() < 0.1:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # leaves its transaction open
        await producer.commit_transaction()
        self._count("copied")

    # Reader and checks

    async def _read(self) -> None:
        """Read what is committed of all partitions from the start."""
        partitions = [TopicPartition(*one) for one in self.read]
        async with self.cluster.consumer(
            auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign(partitions)
            while not self._is_copied():
                try:
                    polled = await consumer.poll(timeout=0.5)
                except KafkaError:
                    await asyncio.sleep(0.05)
                    continue
                for record in polled:
                    self._got((record.topic, record.partition), record.value)
                self._has_read_all = self._writing == 0 and await self._is_at_end(consumer)

    async def _read_near(self, rack: str) -> None:
        """Read what is committed from replicas of a rack, which may follow or lead."""
        near = self.near[rack] = {key: [] for key in self.read}
        async with self.cluster.consumer(
            auto_offset_reset="earliest", isolation_level="read_committed", client_rack=rack
        ) as consumer:
            consumer.assign([TopicPartition(*one) for one in near])
            while not self._is_copied():
                try:
                    polled = await consumer.poll(timeout=0.5)
                except KafkaError:
                    await asyncio.sleep(0.05)
                    continue
                for record in polled:
                    near[record.topic, record.partition].append(record.value)

    async def _is_at_end(self, consumer: AsyncConsumer) -> bool:
        for one in self.read:
            try:
                position = await consumer.position(TopicPartition(*one), timeout=1)
            except KafkaError:
                return False
            if position < self.checks.named_log(*one).end_offset:
                return False
        return True

    def _got(self, key: tuple[str, int], value: bytes) -> None:
        read = self.read[key]
        assert value not in read, f"{value!r} is committed twice in {key}"
        read.append(value)
        if key[0] == COPIES:
            source = self.read[ENTRIES, key[1]]
            place = len(read) - 1
            assert place >= len(source) or source[place] == value, (
                f"{key} has {value!r} at place {place}; the source has {source[place]!r} there"
            )

    async def _compare(self) -> None:
        """Compare the coordinators' states with their logs, again and again."""
        while not self._is_copied():
            await asyncio.sleep(_COMPARED_S)
            self._states_compared += compare_live(view.node for view in self.checks.views)

    def check(self) -> None:
        """Check what is committed in the end, when all has been read."""
        for index in range(COUNT):
            entries, copies = self.read[ENTRIES, index], self.read[COPIES, index]
            assert entries == copies, f"partition {index} holds {entries}; its copy {copies}"
        for rack, near in self.near.items():
            assert any(near.values()), f"nothing was read in {rack}"
            for key, values in near.items():
                whole = self.read[key]
                assert values == whole[: len(values)], f"{rack} reads {values} of {key}: {whole}"
        visible = {
            value for (topic, _), read in self.read.items() if topic == ENTRIES for value in read
        }
        for attempt in self.attempts:
            found = visible.intersection(attempt.values)
            complete = len(found) == len(attempt.values)
            assert complete or not found, f"of {attempt.values} only {sorted(found)} are committed"
            if attempt.outcome is Outcome.COMMITTED:
                assert complete, f"{attempt.values} were committed and are not there"
            if attempt.outcome is Outcome.NEVER_COMMITTED:
                assert not found, f"{attempt.values} were not committed and are there"
        for view in self.checks.views:
            for partition in view.node.broker.replicas:
                stable, end = partition.log.last_stable_offset, partition.log.log_end_offset
                if partition.is_leader:
                    assert stable == end, (
                        f"the last stable offset of {partition.topic_partition} stays at {stable}, "
                        f"its end is {end}"
                    )
        compare_live(view.node for view in self.checks.views)
        assert self._states_compared, "no coordinator's state was compared"
