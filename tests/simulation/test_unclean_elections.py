"""Unclean elections of partitions that transactions write to: records are lost, and nothing else.

Leaders, followers and coordinators die, one of them with its power, until only a replica that was
left behind is there and leads. When all is over the replicas are equal in records, epochs and
producers, and readers at read_committed get to the end: a transaction whose records or markers were
lost holds no reader back for longer than its timeout.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from ottla import NewTopic, TopicPartition
from ottla.errors import KafkaError
from ottla.testing.simulation import SimulatedCluster
from tests.simulation.clusters.transactions import SETTINGS as TRANSACTION_SETTINGS
from tests.waits import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.replication.partition import Partition

SETTINGS: Final = {
    **TRANSACTION_SETTINGS,
    "replica.lag.time.max.ms": "2000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.fetch.backoff.ms": "200",
    "unclean.leader.election.interval.ms": "1000",
}
BROKERS: Final = (1, 2, 3)
PARTITIONS: Final = 3
ROUNDS: Final = 6
_UNCLEAN: Final = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
_TIMEOUT_MS: Final = 4000
_FENCED_S: Final = 4
"""By then a broker that ended is fenced: its session lasts three seconds."""


class UncleanRun:
    """One seed: what clients send, which brokers die, and what holds in the end."""

    def __init__(self, seed: int, rounds: int = ROUNDS) -> None:
        self._rounds = rounds
        roles = dict.fromkeys(BROKERS, "broker") | dict.fromkeys((4, 5, 6), "controller")
        self.rng = Random(f"{seed}/unclean")
        self.cluster = SimulatedCluster(seed, nodes=6, roles=roles, config=SETTINGS)
        self.is_over = False
        self.unclean_elections = 0

    async def run(self) -> None:
        """Write under faults, then compare."""
        await self.cluster.start()
        async with self.cluster.admin() as admin:
            await admin.create_topics([NewTopic("t", PARTITIONS, 3, configs=_UNCLEAN)])
        self._count_elections()
        jobs = [asyncio.ensure_future(self._write(f"w{one}")) for one in range(2)]
        jobs.append(asyncio.ensure_future(self._write(None)))
        for _ in range(self._rounds):
            await self._lose_leaders()
        self.cluster.heal()
        await until(self._is_in_sync, 120)
        self.is_over = True
        async with asyncio.timeout(120):
            await asyncio.gather(*jobs)
        await self._finish()
        await until(self._is_in_sync, 120)
        await until(self._is_equal, 120)
        await self._read_all()

    def _count_elections(self) -> None:
        node = self.cluster[4].node
        assert node is not None

        def note(_delta: Any, image: Any) -> None:
            topic = image.topics.by_name.get("t")
            partitions = () if topic is None else topic.partitions.values()
            self.unclean_elections += sum(bool(one.leader_recovery_state) for one in partitions)

        node.controller.add_listener(note)

    # Clients

    async def _write(self, transactional_id: str | None) -> None:
        """Send in transactions, or idempotently, with one producer after the other."""
        settings: dict[str, Any] = {"delivery_timeout_ms": 8000, "request_timeout_ms": 3000}
        if transactional_id is not None:
            settings |= {
                "transactional_id": transactional_id,
                "transaction_timeout_ms": _TIMEOUT_MS,
                "max_block_ms": 10_000,
            }
        while not self.is_over:
            with suppress(KafkaError):
                async with self.cluster.producer(**settings) as producer:
                    if transactional_id is not None:
                        await producer.init_transactions()
                    while not self.is_over:
                        await self._send_some(producer, in_transaction=transactional_id is not None)
            await asyncio.sleep(0.2)

    async def _send_some(self, producer: Any, *, in_transaction: bool) -> None:
        if in_transaction:
            await producer.begin_transaction()
        for number in range(PARTITIONS):
            await producer.send("t", b"%d" % self.rng.randrange(1000), partition=number)
        await producer.flush()
        if in_transaction and self.rng.random() < 0.8:
            await producer.commit_transaction()
        elif in_transaction:
            await producer.abort_transaction()
        await asyncio.sleep(self.rng.random() * 0.2)

    async def _finish(self) -> None:
        """Write one committed record to each partition: a cluster without faults serves."""
        async with asyncio.timeout(60), self.cluster.producer(transactional_id="last") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for number in range(PARTITIONS):
                await producer.send("t", b"last", partition=number)
            await producer.commit_transaction()

    async def _read_all(self) -> None:
        """Read all committed records to the end, within the timeout of what was left open."""
        partitions = [TopicPartition("t", number) for number in range(PARTITIONS)]
        async with (
            asyncio.timeout(60),
            self.cluster.consumer(
                isolation_level="read_committed", auto_offset_reset="earliest"
            ) as consumer,
        ):
            consumer.assign(partitions)
            last: set[int] = set()
            while len(last) < PARTITIONS:
                polled = await consumer.poll(timeout=1.0)
                last |= {one.partition for one in polled if one.value == b"last"}

    # Faults

    async def _lose_leaders(self) -> None:
        """Cut one broker off until it is left behind, end the others, and let it lead."""
        left_behind = self.rng.choice(BROKERS)
        others = [one for one in BROKERS if one != left_behind]
        loses_power = self.rng.random() < 0.3
        self.cluster.kill(left_behind, power=loses_power)
        # one that lost its power is fenced first: as the last in sync it would lose decisions
        await asyncio.sleep(self.rng.uniform(_FENCED_S if loses_power else 0.5, 5))
        for one in self.rng.sample(others, 2):
            self.cluster.kill(one)  # with their power two of them would lose committed decisions
            await asyncio.sleep(self.rng.random())
        await self.cluster.start(left_behind)
        await asyncio.sleep(self.rng.uniform(0, 8))
        for one in self.rng.sample(others, 2):
            await self.cluster.start(one)
            await asyncio.sleep(self.rng.random())
        await asyncio.sleep(self.rng.uniform(0, 4))

    # In the end

    def _replicas(self, number: int) -> Iterator[Partition]:
        for one in BROKERS:
            node = self.cluster[one].node
            found = None if node is None else node.broker.replicas.find("t", number)
            if found is not None:
                yield found

    def _is_in_sync(self) -> bool:
        node = self.cluster[4].node
        assert node is not None
        partitions = node.broker.image.topics.by_name["t"].partitions.values()
        return all(len(one.isr) == 3 and one.has_leader for one in partitions)

    def _is_equal(self) -> bool:
        """Whether all replicas have the same bytes, epochs and producers, and all is stable."""
        for number in range(PARTITIONS):
            states = [_state_of(one) for one in self._replicas(number)]
            if len(states) < 3 or any(one != states[0] for one in states) or states[0][-1]:
                return False
        return True


def _state_of(partition: Partition) -> tuple[Any, ...]:
    log = partition.log
    data = b"".join(
        bytes(segment.file._content.data[: segment.size])  # type: ignore[attr-defined] # simulated
        for segment in log.segments
    )
    producers = {
        entry.producer_id: (entry.producer_epoch, entry.in_transaction)
        for entry in log.producer_state.producers.values()
    }
    unstable = log.log_end_offset - log.last_stable_offset
    return data, list(log.leader_epochs.entries), producers, unstable


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5])
@pytest.mark.conformance
def test_replicas_agree_after_many_unclean_elections(seed: int) -> None:
    """Records are lost; replicas are equal, transactions end, and clients go on."""
    run = UncleanRun(seed)
    run.cluster.run(run.run())
    assert run.unclean_elections, "no election was unclean"


@pytest.mark.soak
def test_replicas_agree_after_unclean_elections() -> None:
    """The same with fewer of them."""
    run = UncleanRun(6, rounds=2)
    run.cluster.run(run.run())
    assert run.unclean_elections, "no election was unclean"
