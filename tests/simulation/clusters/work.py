"""Clients of a cluster that loses nodes: producers, readers, a group, an administrator."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from ottla import TopicPartition
from ottla.clients.admin.quorum import VoterEndpoint
from ottla.errors import CorruptMessage, KafkaError
from tests.simulation.clusters.chosen import cancel_move, choose, registration
from tests.simulation.clusters.settings import (
    change_features,
    change_settings,
    change_what_runs,
    restore_what_runs,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Any

    from ottla.clients.admin.admin import AsyncAdmin
    from ottla.clients.admin.quorum import QuorumInfo
    from ottla.clients.consumer.consumer import AsyncConsumer
    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.producer.producer import AsyncProducer
    from ottla.testing.simulation import SimulatedCluster
    from tests.simulation.clusters.checks import ClusterChecks

KEPT, PLAIN = "kept", "plain"
PARTITIONS = {KEPT: 3, PLAIN: 2}
GROUP = "readers"
CONTROLLER = "CONTROLLER"
CONTROLLER_PORT = 9093
SOME = 3
"""Names of topics that come and go."""
MAX_LIFE_S = 20.0
"""How long an idempotent producer lives."""
_ADMIN_LIMIT_S = 30.0
_LAST_WRITES_S = 1.0
"""How long clients write and read after the administrator's last change."""


class ClusterWork:
    """What clients do and learn; `is_calm` and then `is_over` end it."""

    def __init__(
        self,
        seed: int,
        cluster: SimulatedCluster,
        checks: ClusterChecks,
        *,
        changes_what_runs: bool = False,
    ) -> None:
        self._changes_what_runs = changes_what_runs
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
        self.is_calm = False
        """Whether the administrator is to make its last change."""
        self.producers: dict[bytes, int] = {}
        """Value → the number of the producer that sent it."""
        self._producer_ids: dict[int, int] = {}
        """Producer id → the number of the producer that has it."""
        self.deleted: dict[TopicPartition, int] = {}
        """Partition → below which offset an administrator may have deleted the records."""
        self._committed: dict[TopicPartition, int] = {}
        """The group's offsets that the coordinator has acknowledged."""
        self._producer_count = 0
        self.counts: dict[str, int] = {}
        """How often an administrator did what needs conditions."""
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
            self._produce_idempotently(),
            self._produce(),
            self._read(),
            self._join(),
        ]

    # Producers

    async def _produce(self) -> None:
        async with self.cluster.producer(
            acks="all", delivery_timeout_ms=60_000, enable_idempotence=False
        ) as producer:
            while not self.is_over:
                await self._send_some(producer, PLAIN)
                await asyncio.sleep(self.rng.random() * 0.2)

    async def _produce_idempotently(self) -> None:
        """Send with one producer after the other: each has an own id."""
        while not self.is_over:
            self._producer_count += 1
            lasts_s = self.cluster.loop.time() + self.rng.random() * MAX_LIFE_S
            async with self.cluster.producer(acks="all", delivery_timeout_ms=60_000) as producer:
                while self.cluster.loop.time() < lasts_s and not self.is_over:
                    await self._send_some(producer, KEPT)
                    self._check_producer_id(producer)
                    await asyncio.sleep(self.rng.random() * 0.2)

    def _check_producer_id(self, producer: AsyncProducer) -> None:
        producer_id = producer._core.sender.producer_id
        if producer_id >= 0:
            known = self._producer_ids.setdefault(producer_id, self._producer_count)
            assert known == self._producer_count, f"two producers have the id {producer_id}"

    async def _send_some(self, producer: AsyncProducer, topic: str) -> None:
        waits = []
        for _ in range(self.rng.randrange(1, 20)):
            value, partition = b"%d" % self.sent, self.sent % PARTITIONS[topic]
            self.sent += 1
            self.producers[value] = self._producer_count if topic == KEPT else 0
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
        except KafkaError as error:
            await asyncio.sleep(0.05)
            if isinstance(error, CorruptMessage):  # fetch it again
                for one in self.partitions():
                    consumer.seek(TopicPartition(*one), self.read.get(one, 0))
            return
        for record in polled:
            key = record.topic, record.partition
            known = self.acknowledged.get((*key, record.offset), record.value)
            assert record.value == known, f"a reader of {key} got {record.value!r}, not {known!r}"
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
                KEPT, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
            ) as consumer:
                while self.cluster.loop.time() < lasts_s and not self._is_done():
                    try:
                        polled = await consumer.poll(timeout=0.5)
                        self.group_read.update(
                            (one.topic, one.partition, one.offset) for one in polled
                        )
                        await self._commit(consumer, polled)
                    except KafkaError:
                        await asyncio.sleep(0.05)

    async def _commit(self, consumer: AsyncConsumer, polled: Sequence[ConsumerRecord]) -> None:
        """Commit at intervals what was read; what the coordinator has committed stays."""
        if not polled or self.rng.random() < 0.5:
            return
        before = dict(self._committed)
        found = await consumer.committed(sorted(consumer.assignment), timeout=5)
        for partition, committed in found.items():
            known, offset = before.get(partition, 0), 0 if committed is None else committed.offset
            assert offset >= known, (
                f"the group committed {known} of {partition}; now it is {offset}"
            )
        offsets = {TopicPartition(one.topic, one.partition): one.offset + 1 for one in polled}
        await consumer.commit(offsets, timeout=5)
        self._committed.update(offsets)

    def _is_done(self) -> bool:
        return self.is_over and self._has_group_read_all()

    def _has_group_read_all(self) -> bool:
        return all(key in self.group_read for key in self.acknowledged if key[0] == KEPT)

    # Administration

    async def administer(self) -> None:
        """Create and delete topics, move replicas and leaders, change the voters."""
        async with self.cluster.admin() as admin:
            running = (self._change_what_runs, self._change_features)
            last = running if self._changes_what_runs else ()
            while not self.is_calm:
                await asyncio.sleep(self.rng.random() * 4)
                action = self.rng.choice(
                    (
                        self._create_topic,
                        self._delete_topic,
                        self._delete_records,
                        self._reassign,
                        self._reassign,
                        self._cancel_move,
                        self._elect,
                        self._change_voters,
                        *last,
                    )
                )
                try:
                    async with asyncio.timeout(_ADMIN_LIMIT_S):
                        await action(admin)
                except (KafkaError, TimeoutError):
                    continue
            if self._changes_what_runs:
                await self._restore_settings(admin)
            await self._move_last(admin)

    async def _create_topic(self, admin: AsyncAdmin) -> None:
        await self._create_named(admin, f"some-{self.rng.randrange(SOME)}")

    async def _create_named(self, admin: AsyncAdmin, name: str) -> None:
        """Create a topic, perhaps under the name of a deleted one, and write to it."""
        await admin.create_topic(name, self.rng.randrange(1, 4), 3)
        async with self.cluster.producer(acks="all") as producer:
            placed = await producer.send_and_wait(name, b"first", partition=0)
        assert placed.offset == 0 or self._is_in_deleted(name, placed.offset), (
            f"the first record of the new {name} is at {placed.offset}"
        )

    def _is_in_deleted(self, name: str, offset: int) -> bool:
        """Whether a record is in the topic that had the name before, as it may be in Kafka.

        The producer's metadata and the old leader may not know of the deletion yet.
        """
        brokers = [host.node.broker for host in self.cluster if host.node is not None]
        newest = max((one.image for one in brokers), key=lambda image: image.offset_and_epoch)
        found = [one.replicas.find(name, 0) for one in brokers]
        logs = [one.log for one in found if one is not None and one.log.log_end_offset > offset]
        topic = newest.topics.by_name.get(name)
        return topic is not None and all(log.topic_id != topic.topic_id for log in logs)

    async def _delete_topic(self, admin: AsyncAdmin) -> None:
        """Delete a topic; sometimes another one of its name follows at once."""
        names = sorted(one.name for one in await admin.list_topics() if one.name[:5] == "some-")
        if names:
            name = self.rng.choice(names)
            await admin.delete_topics([name])
            if self.rng.random() < 0.5:
                await self._create_named(admin, name)

    async def _delete_records(self, admin: AsyncAdmin) -> None:
        """Delete records that were read."""
        partition = TopicPartition(PLAIN, self.rng.randrange(PARTITIONS[PLAIN]))
        read = self.read.get((partition.topic, partition.partition), 0)
        offset = max(self.deleted.get(partition, 0), self.rng.randrange(read + 1))
        self.deleted[partition] = offset
        await admin.delete_records({partition: offset})

    async def _reassign(self, admin: AsyncAdmin) -> None:
        """Move a partition to other brokers; a move that lasts is cancelled.

        As in Kafka a move that takes back what another one is adding would have no end.
        """
        lasting = await admin.list_partition_reassignments()
        if lasting and self.rng.random() < 0.5:
            partition = self.rng.choice(sorted(lasting))
        else:
            partition = TopicPartition(*self.rng.choice(self.partitions()))
        target = None if partition in lasting else self.rng.sample(self._brokers, 3)
        await admin.alter_partition_reassignments({partition: target})

    async def _cancel_move(self, admin: AsyncAdmin) -> None:
        """Cancel a move while a replica that it would replace is out of sync."""
        chosen = choose(self.cluster, self.rng, PARTITIONS)
        if chosen is not None and chosen.spare is not None:
            await cancel_move(self.cluster, self.rng, admin, chosen)
            self._count("moves cancelled")

    async def _move_last(self, admin: AsyncAdmin) -> None:
        """Move a partition away from its leader when no fault makes clients look for leaders.

        Those that have read all must notice it by what the former leader answers.
        """
        partition = TopicPartition(*self.rng.choice(self.partitions()))
        if len(self._brokers) < 4 or self.rng.random() < 0.5:
            return
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(_ADMIN_LIMIT_S):
                await self._until_whole(partition)
                found = registration(self.cluster, partition)
                assert found is not None
                target = [one for one in self._brokers if one != found.leader][:3]
                await admin.alter_partition_reassignments({partition: target})
                await self._until_whole(partition)
                self._count("last moves")
        await asyncio.sleep(_LAST_WRITES_S)

    async def _until_whole(self, partition: TopicPartition) -> None:
        while True:
            await asyncio.sleep(0.5)
            found = registration(self.cluster, partition)
            if found and found.has_leader and not found.is_reassigning and len(found.isr) == 3:
                return

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def _elect(self, admin: AsyncAdmin) -> None:
        await admin.elect_leaders()

    async def _change_what_runs(self, admin: AsyncAdmin) -> None:
        await change_what_runs(admin, self.rng, PARTITIONS)
        self._count("running settings changed")

    async def _change_features(self, admin: AsyncAdmin) -> None:
        await change_features(admin, self.rng)
        self._count("features changed")

    async def _restore_settings(self, admin: AsyncAdmin) -> None:
        """Take the changes back: in the end two of three replicas must do, at full rate."""
        async with asyncio.timeout(_ADMIN_LIMIT_S):
            while True:
                try:
                    await restore_what_runs(admin, PARTITIONS)
                except KafkaError:
                    await asyncio.sleep(0.1)
                else:
                    return

    async def _change_voters(self, admin: AsyncAdmin) -> None:
        """Remove a voter, or add one that was removed before, while the metadata change."""
        found = await admin.describe_metadata_quorum()
        await asyncio.gather(
            change_settings(admin, self.rng, PARTITIONS, self.rng.randrange(4)),
            self._change_voter(admin, found),
        )

    async def _change_voter(self, admin: AsyncAdmin, found: QuorumInfo) -> None:
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
