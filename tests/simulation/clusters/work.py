"""Clients of a cluster that loses nodes: producers, readers, a group, an administrator."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from ottla import NewTopic, TopicPartition
from ottla.clients.admin.quorum import VoterEndpoint
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from ottla.clients.admin.admin import AsyncAdmin
    from ottla.clients.consumer.consumer import AsyncConsumer
    from ottla.clients.producer.producer import AsyncProducer
    from ottla.testing.simulation import SimulatedCluster
    from tests.simulation.clusters.checks import ClusterChecks

KEPT, PLAIN = "kept", "plain"
PARTITIONS = {KEPT: 3, PLAIN: 2}
GROUP = "readers"
CONTROLLER = "CONTROLLER"
CONTROLLER_PORT = 9093
_ADMIN_LIMIT_S = 30.0


class ClusterWork:
    """What clients do and learn; `is_over` ends it."""

    def __init__(self, seed: int, cluster: SimulatedCluster, checks: ClusterChecks) -> None:
        self.cluster = cluster
        self.rng = Random(f"{seed}/work")
        self.checks = checks
        self.acknowledged: dict[tuple[str, int, int], bytes] = {}
        """Topic, partition and offset → value."""
        self.sent = 0
        self.read: dict[tuple[str, int], int] = {}
        """The next offset of each partition that the reader reads."""
        self.group_read: set[tuple[str, int, int]] = set()
        """What members of the group got, in any order and more than once."""
        self.is_over = False
        self._topic_count = 0
        self._brokers = [
            number
            for number, host in enumerate(cluster, start=1)
            if "broker" in host.config["process.roles"]
        ]

    async def create(self) -> None:
        """Create the topics that stay."""
        async with self.cluster.admin() as admin:
            for name, count in PARTITIONS.items():
                await admin.create_topic(name, count, 3, if_not_exists=True)

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """Return what is to run until `is_over`."""
        return [
            self._produce(KEPT, enable_idempotence=True),
            self._produce(PLAIN, enable_idempotence=False),
            self._read(),
            self._join(),
            self._administer(),
        ]

    # Producers

    async def _produce(self, topic: str, **settings: Any) -> None:
        async with self.cluster.producer(
            acks="all", delivery_timeout_ms=60_000, **settings
        ) as producer:
            while not self.is_over:
                await self._send_some(producer, topic)
                await asyncio.sleep(self.rng.random() * 0.2)

    async def _send_some(self, producer: AsyncProducer, topic: str) -> None:
        waits = []
        for _ in range(self.rng.randrange(1, 20)):
            value, partition = b"%d" % self.sent, self.sent % PARTITIONS[topic]
            self.sent += 1
            try:
                waits.append((value, await producer.send(topic, value, partition=partition)))
            except KafkaError:  # no metadata in time: it was never sent
                continue
        for value, wait in waits:
            try:
                placed = await wait
            except KafkaError:  # not acknowledged: it may be there or not
                continue
            self._acknowledged(topic, placed.partition, placed.offset, value)

    async def send_one(self, producer: AsyncProducer, topic: str, partition: int) -> None:
        """Send a record and wait until it is acknowledged."""
        value = b"%d" % self.sent
        self.sent += 1
        placed = await producer.send_and_wait(topic, value, partition=partition)
        self._acknowledged(topic, partition, placed.offset, value)

    def _acknowledged(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        log = self.checks.named_log(topic, partition)
        assert offset < log.end_offset, (
            f"{value!r} is acknowledged at {offset} of {log.name}; committed are {log.end_offset}"
        )
        known = self.acknowledged.setdefault((topic, partition, offset), value)
        assert known == value, f"{known!r} and {value!r} are acknowledged at {offset} of {log.name}"

    # Consumers

    async def _read(self) -> None:
        """Read all partitions from the start: no offset is left out and none comes twice."""
        async with self.cluster.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(*one) for one in self.partitions()])
            while not (self.is_over and self._has_read_all()):
                await self._poll(consumer)

    async def _poll(self, consumer: AsyncConsumer) -> None:
        try:
            polled = await consumer.poll(timeout=0.5)
        except KafkaError:
            return
        for record in polled:
            key = record.topic, record.partition
            expected = self.read.get(key, 0)
            assert record.offset == expected, (
                f"a reader of {key} got offset {record.offset} and not {expected}"
            )
            log = self.checks.named_log(*key)
            assert record.offset < log.end_offset, f"{record.offset} of {key} is not committed"
            self.read[key] = expected + 1

    def partitions(self) -> list[tuple[str, int]]:
        """Return the partitions that stay."""
        return [(name, index) for name, count in PARTITIONS.items() for index in range(count)]

    def _has_read_all(self) -> bool:
        return all(
            self.read.get(key, 0) >= self.checks.named_log(*key).end_offset
            for key in self.partitions()
        )

    async def _join(self) -> None:
        """Read as members of a group that come and go: together they get everything."""
        while not self.is_over or not self._has_group_read_all():
            lasts_s = self.cluster.loop.time() + self.rng.random() * 30
            async with self.cluster.consumer(
                KEPT, group_id=GROUP, auto_offset_reset="earliest"
            ) as consumer:
                while self.cluster.loop.time() < lasts_s and not self._is_done():
                    try:
                        polled = await consumer.poll(timeout=0.5)
                    except KafkaError:
                        continue
                    self.group_read.update((one.topic, one.partition, one.offset) for one in polled)

    def _is_done(self) -> bool:
        return self.is_over and self._has_group_read_all()

    def _has_group_read_all(self) -> bool:
        return all(key in self.group_read for key in self.acknowledged if key[0] == KEPT)

    # Administration

    async def _administer(self) -> None:
        """Create and delete topics, move replicas and leaders, change the voters."""
        async with self.cluster.admin() as admin:
            while not self.is_over:
                await asyncio.sleep(self.rng.random() * 4)
                action = self.rng.choice(
                    (
                        self._create_topic,
                        self._delete_topic,
                        self._reassign,
                        self._reassign,
                        self._elect,
                        self._change_voters,
                    )
                )
                try:
                    async with asyncio.timeout(_ADMIN_LIMIT_S):
                        await action(admin)
                except (KafkaError, TimeoutError):
                    continue

    async def _create_topic(self, admin: AsyncAdmin) -> None:
        self._topic_count += 1
        new = NewTopic(f"some-{self._topic_count}", self.rng.randrange(1, 4), 3)
        await admin.create_topics([new])

    async def _delete_topic(self, admin: AsyncAdmin) -> None:
        names = sorted(one.name for one in await admin.list_topics() if one.name[:5] == "some-")
        if names:
            await admin.delete_topics([self.rng.choice(names)])

    async def _reassign(self, admin: AsyncAdmin) -> None:
        """Move a partition to other brokers; a move that lasts is cancelled.

        As in Kafka a move that takes back what another one is adding would have no end.
        """
        partition = TopicPartition(*self.rng.choice(self.partitions()))
        lasting = await admin.list_partition_reassignments()
        target = None if partition in lasting else self.rng.sample(self._brokers, 3)
        await admin.alter_partition_reassignments({partition: target})

    async def _elect(self, admin: AsyncAdmin) -> None:
        await admin.elect_leaders()

    async def _change_voters(self, admin: AsyncAdmin) -> None:
        """Remove a voter, or add one that was removed before."""
        found = await admin.describe_metadata_quorum()
        if found.observers and self.rng.random() < 0.7:
            added = self.rng.choice(found.observers)
            if "controller" in self.cluster[added.replica_id].config["process.roles"]:
                host = f"node{added.replica_id}"
                await admin.add_raft_voter(
                    added.replica_id,
                    added.directory_id,
                    [VoterEndpoint(CONTROLLER, host, CONTROLLER_PORT)],
                )
        elif len(found.voters) > 3:
            removed = self.rng.choice(found.voters)
            await admin.remove_raft_voter(removed.replica_id, removed.directory_id)
