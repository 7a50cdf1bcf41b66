"""Members of a share group in a cluster with faults: together they end every record.

They come and go, hold records beyond their locks, accept most, release some and reject a few.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from ottla import AcknowledgeType, ConfigResource, ResourceType
from ottla.errors import IllegalStateError, KafkaError
from tests.simulation.clusters.share_checks import ShareChecks

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from ottla.clients.share.consumer import AsyncShareConsumer
    from ottla.testing.simulation import SimulatedCluster

TOPIC, GROUP, COUNT = "shared", "members", 2
LOCK_MS = 3000
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "request.timeout.ms": "3000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "6000",
    "group.share.initialize.retry.interval.ms": "1000",
}
_MAX_LIFE_S = 20.0
_ADMIN_LIMIT_S = 60.0


def has_shares(seed: int) -> bool:
    """Whether a seed has these clients; those with transactions have none."""
    return seed % 7 in {0, 2}


class ShareWork:
    """What members of a share group do and learn; `is_over` ends it."""

    def __init__(self, seed: int, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.rng = Random(f"{seed}/shares")
        self.checks = ShareChecks()
        self.is_over = False
        self.sent: set[tuple[int, int]] = set()
        """Partition and offset of each acknowledged record."""
        self.counts: dict[str, int] = {}
        self._topic_id = b""
        self._values = 0
        self._is_producing = True
        """Whether a record may follow, also one that was sent before all was over."""

    async def create(self) -> None:
        """Create the topic, and let the group begin with its first record."""
        group = ConfigResource(ResourceType.GROUP, GROUP)
        async with asyncio.timeout(_ADMIN_LIMIT_S), self.cluster.admin() as admin:
            created = await admin.create_topic(TOPIC, COUNT, 3, if_not_exists=True)
            assert created is not None
            self._topic_id = bytes(created.topic_id)
            await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """Return what is to run until `is_over`."""
        return [self._produce(), self._take_part(), self._take_part(), self._take_part()]

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
        self._is_producing = False

    # Members

    def _is_done(self) -> bool:
        return not self._is_producing and self._has_ended_all()

    def _has_ended_all(self) -> bool:
        return all(self.checks.has_ended((self._topic_id, *one)) for one in self.sent)

    async def _take_part(self) -> None:
        """Be one member after the other."""
        while not self._is_done():
            lasts_s = self.cluster.loop.time() + self.rng.random() * _MAX_LIFE_S
            with suppress(KafkaError):
                async with self.cluster.share_consumer(
                    TOPIC,
                    group_id=GROUP,
                    share_acknowledgement_mode="explicit",
                    max_poll_records=self.rng.randrange(1, 20),
                    share_acquire_mode=self.rng.choice(("batch_optimized", "record_limit")),
                    request_timeout_ms=8_000,
                ) as member:
                    while self.cluster.loop.time() < lasts_s and not self._is_done():
                        await self._poll(member)
            await asyncio.sleep(0.1)

    async def _poll(self, member: AsyncShareConsumer) -> None:
        try:
            polled = await member.poll(timeout=0.5)
        except IllegalStateError:
            raise
        except KafkaError:
            await asyncio.sleep(0.05)
            return
        if polled and self.rng.random() < 0.05:
            await asyncio.sleep(self.rng.random() * 2 * LOCK_MS / 1000)
            self._count("held for long")
        for record in polled:
            kind = self.rng.choices(
                (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT),
                (85, 10, 5),
            )[0]
            member.acknowledge(record, kind)
            self._count(kind.name)
        if polled and self.rng.random() < 0.5:
            outcome = await member.commit(timeout=5)
            self._count("commits" if set(outcome.values()) == {None} else "commits failed")

    def check(self) -> None:
        """Check what has passed the leaders, and that all records have ended."""
        self.checks.check()
        stuck = sorted(
            one for one in self.sent if not self.checks.has_ended((self._topic_id, *one))
        )
        assert not stuck, f"records of {TOPIC} have not ended: {stuck[:10]}"
        assert self.checks.deliveries, "nothing was delivered"
