"""Members of a consumer group of the new protocol in a cluster with faults (KIP-848).

They come and go, some with an instance id, and stall beyond their time; together they read every
record. The coordinators are watched: no partition has two owners. What is committed in the log
never steps back.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from ottla import TopicPartition
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.offsets.committed import CommittedOffset
from ottla.coordinator.group.offsets.records import OffsetKey
from ottla.coordinator.group.shard import _RecordSerde
from ottla.errors import KafkaError
from tests.simulation.clusters.owners import OwnerChecks

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from typing import Any

    from ottla.clients.consumer.consumer import AsyncConsumer
    from ottla.coordinator.group.consumer.group import ConsumerMember
    from ottla.records.record import Record
    from ottla.testing.simulation import SimulatedCluster

TOPIC, GROUP, COUNT = "owned", "owners", 4
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.assignment.interval.ms": "200",
}
_MAX_POLL_MS = 5000
_MAX_LIFE_S = 20.0
_ADMIN_LIMIT_S = 60.0


def has_members(seed: int) -> bool:
    """Whether a seed has these clients; those with transactions or shares have none."""
    return seed % 7 in {4, 6}


def _owned(member: ConsumerMember) -> set[tuple[bytes, int]]:
    return {
        (bytes(topic_id), index)
        for partitions in (member.assigned, member.pending_revocation)
        for topic_id, indexes in partitions.items()
        for index in indexes
    }


class MemberWork:
    """What the members do and learn; `is_over` ends it."""

    def __init__(self, seed: int, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.rng = Random(f"{seed}/members")
        self.checks = OwnerChecks(ConsumerGroup, GROUP, _owned)
        self.is_over = False
        self.sent: set[tuple[int, int]] = set()
        """Partition and offset of each acknowledged record."""
        self.read: set[tuple[int, int]] = set()
        self.counts: dict[str, int] = {}
        self._values = 0

    async def create(self) -> None:
        """Create the topic."""
        async with asyncio.timeout(_ADMIN_LIMIT_S), self.cluster.admin() as admin:
            await admin.create_topic(TOPIC, COUNT, 3, if_not_exists=True)

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """Return what is to run until `is_over`."""
        return [self._produce(), *(self._take_part(number) for number in range(3))]

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def _produce(self) -> None:
        async with self.cluster.producer(acks="all", delivery_timeout_ms=60_000) as producer:
            while not self.is_over:
                partition, value = self.rng.randrange(COUNT), b"%d" % self._values
                self._values += 1
                with suppress(KafkaError):
                    placed = await producer.send_and_wait(TOPIC, value, partition=partition)
                    self.sent.add((placed.partition, placed.offset))
                await asyncio.sleep(self.rng.random() * 0.3)

    def _is_done(self) -> bool:
        return self.is_over and self.sent <= self.read

    async def _take_part(self, number: int) -> None:
        """Be one member after the other; the first comes back with its instance id."""
        while not self._is_done():
            lasts_s = self.cluster.loop.time() + self.rng.random() * _MAX_LIFE_S
            with suppress(KafkaError):
                async with self.cluster.consumer(
                    TOPIC,
                    group_id=GROUP,
                    group_protocol="consumer",
                    group_instance_id="static" if number == 0 else None,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    max_poll_interval_ms=_MAX_POLL_MS,
                    request_timeout_ms=8_000,
                ) as member:
                    while self.cluster.loop.time() < lasts_s and not self._is_done():
                        await self._poll(member)
            await asyncio.sleep(0.1)

    async def _poll(self, member: AsyncConsumer) -> None:
        try:
            polled = await member.poll(timeout=0.5)
        except KafkaError:
            await asyncio.sleep(0.05)
            return
        self.read.update((one.partition, one.offset) for one in polled)
        if polled and self.rng.random() < 0.05:
            await asyncio.sleep(self.rng.random() * 2 * _MAX_POLL_MS / 1000)
            self._count("stalls")
        if polled and self.rng.random() < 0.7:
            ends = {TopicPartition(TOPIC, one.partition): one.offset + 1 for one in polled}
            try:
                await member.commit(ends, timeout=5)
            except KafkaError:
                self._count("commits failed")
            else:
                self._count("commits")

    def check(self, written: Iterable[Record]) -> None:
        """Check what the coordinators have replayed, and the committed offsets in the log."""
        assert not self.checks.violations, self.checks.violations[0]
        assert self.checks.changes, "no member joined"
        committed: dict[TopicPartition, int] = {}
        serde = _RecordSerde()
        for record in written:
            decoded = None if record.key is None else serde.decode(record.key, record.value)
            if decoded is None or not isinstance(decoded.key, OffsetKey):
                continue
            key, value = decoded.key, decoded.value
            if key.group != GROUP or not isinstance(value, CommittedOffset):
                continue
            before = committed.get(key.topic_partition, 0)
            assert value.offset >= before, (
                f"{value.offset} of {key.topic_partition} is committed after {before}"
            )
            committed[key.topic_partition] = value.offset
        assert committed, "nothing was committed"
