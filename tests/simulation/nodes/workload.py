"""A seeded workload on a simulated node: clients, crashes, damage, and what must hold after each.

A producer, two or three members of a group and an admin client use topics of several partitions,
which are created, deleted, extended and reconfigured meanwhile. The node is killed or loses its
power at file operations, links break, reads are slow, bits of stored batches rot. `checks` lists
what must hold.

Kafka: none; after its system tests' verifiable clients.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.coordinator.runtime.java_hash import partition_for
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.raft.log_check import _RECOVERY_POINT_PATH
from ottla.storage.directories.checkpoints import decode_offsets
from ottla.storage.layout import CLEAN_MARKER, LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from ottla.testing.disk import SimulatedCrash
from ottla.testing.simulation.node import SimulatedNode
from ottla.types import TopicPartition
from tests.simulation.nodes.checks import Checks
from tests.simulation.nodes.model import (
    Commit,
    CommitModel,
    GroupModel,
    InvariantViolated,
    Place,
    TopicModel,
)
from tests.simulation.nodes.node_rot import NodeRot
from tests.simulation.nodes.rot import rot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ottla.clients.admin.admin import AsyncAdmin
    from ottla.clients.consumer.consumer import AsyncConsumer
    from ottla.clients.producer.producer import AsyncProducer

GROUP = "group"
OTHER_GROUP = "other"
"""Without members; its offsets lie in the other partition."""
OFFSETS_TOPIC = "__consumer_offsets"
_OFFSETS_PARTITIONS = 2
_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, _RECOVERY_POINT_PATH)
MAX_PARTITIONS = 3
MAX_MEMBERS = 3
_SMALL: Mapping[str, str] = {
    "log.index.interval.bytes": "512",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "metadata.max.retention.bytes": "16000",
    "internal.metadata.log.segment.bytes": "4096",
    "offsets.topic.num.partitions": str(_OFFSETS_PARTITIONS),
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "server.max.startup.time.ms": "60000",
    "log.retention.ms": "-1",  # a rotten timestamp may make a segment look expired, as in Kafka
    "log.flush.interval.ms": "400",
    "log.flush.scheduler.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "1000",
}
"""Small files, so that a short run rolls, flushes, snapshots and recovers them."""
QUICK: Mapping[str, Any] = {
    "request_timeout_ms": 3000,
    "retry_backoff_ms": 50,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
}


class Workload:
    """`run` drives one seed to its end and raises InvariantViolated when a promise is broken."""

    def __init__(
        self,
        seed: int,
        *,
        steps: int = 60,
        crash_probability: float = 0.08,
        power_probability: float = 0.5,
        rot_probability: float = 0.01,
        rot_at_start_probability: float = 0.1,
        crash_at: int = 0,
        keep_lines: bool = False,
    ) -> None:
        """Take a seed and how rough the run is; crash_at is the number of a file operation.

        keep_lines keeps the trace's text.
        """
        self.seed = seed
        self.simulation = SimulatedNode(seed, config=_SMALL, keep_lines=keep_lines)
        self.rng = Random(f"{seed}/workload")
        self.topics: dict[str, TopicModel] = {}
        self.uncertain_topics: set[str] = set()
        """Topics whose creation or deletion was not answered."""
        self.groups = [_group(GROUP), _group(OTHER_GROUP)]
        self.members: list[AsyncConsumer] = []
        self.admin: AsyncAdmin | None = None
        self.crash_count = 0
        self.rot_count = 0
        self.checks = Checks(self)
        self.node_rot = NodeRot(self, rot_at_start_probability)
        self._flushed: dict[TopicPartition, int] = {}
        """By partition: the offset up to which everything was flushed when the node died."""
        self._steps = steps
        self._crash_probability = crash_probability
        self._power_probability = power_probability
        self._rot_probability = rot_probability
        self._crash_at = crash_at
        self._value_count = 0
        self._topic_count = 0
        self._deleted_names: list[str] = []
        self._producer: AsyncProducer | None = None

    def run(self) -> Workload:
        """Run all steps, crash and restart, and check; return itself."""
        try:
            self.simulation.run(self._main())
        except InvariantViolated:
            raise
        except Exception as error:
            raise InvariantViolated(f"Workload({self.seed}).run() fails: {error!r}") from error
        return self

    def check(self, condition: object, text: str) -> None:
        """Raise InvariantViolated unless the condition holds."""
        if not condition:
            raise InvariantViolated(f"Workload({self.seed}): {text}")

    # The course of events

    async def _main(self) -> None:
        simulation, rng = self.simulation, self.rng
        simulation.disk.cold_probability = rng.choice((0.0, 0.0, 0.05, 0.3))
        simulation.disk_latency_us = rng.choice(((50, 3000), (50, 3000), (500, 30_000)))
        self._arm()
        await self.start()
        await self.open_clients()
        for _ in range(self._steps):
            if rng.random() < self._crash_probability:
                self._crash_within(40)
            if rng.random() < self._rot_probability:
                self.rot_count += rot(simulation.disk, rng, self.topics)
            await (self._step() if self.topics else self._create_topic())
            if not simulation.is_alive:
                await self._recover()
        self._heal()
        await self.checks.everything()
        await self.checks.assignments()
        if not simulation.is_alive:  # a planned crash struck during the checks
            await self._recover()
        await self.close_clients()
        await self._stop()

    async def _stop(self) -> None:
        """Stop cleanly; a crash meanwhile is one like any other."""
        try:
            await self.simulation.stop()
        except SimulatedCrash:
            self.crash()
            await self.start()
            await self.open_clients()
            await self.checks.everything()
            await self.close_clients()
            await self.simulation.stop()

    async def start(self) -> None:
        """Start, and again when a fault strikes meanwhile."""
        while True:
            try:
                await self.simulation.start()
            except SimulatedCrash:
                self.crash()
            else:
                self._heal()
                return

    # Crashes

    def _arm(self) -> None:
        """Let the planned crash strike, unless it did."""
        disk = self.simulation.disk
        if self._crash_at > disk.calls:
            disk.crash_at(self._crash_at)

    def _heal(self) -> None:
        self.simulation.disk.heal()
        self._arm()

    def _crash_within(self, operations: int) -> None:
        disk = self.simulation.disk
        disk.crash_at(disk.calls + self.rng.randrange(1, operations))

    def crash(self) -> None:
        """Kill the process or cut the power; sometimes let the next start crash as well."""
        self.crash_count += 1
        power = self.rng.random() < self._power_probability
        self._note_flushed()
        if power:
            self._cut_power()
            self._forget_unflushed()
        else:
            self.simulation.kill(power=False)
        self._arm()
        if self._crash_probability and self.rng.random() < 0.3:
            self._crash_within(60)

    def _cut_power(self) -> None:
        """Lose what was not synced; checkpoints that were in place stay readable."""
        disk = self.simulation.disk
        before = {path: disk.named_content(path) for path in _CHECKPOINTS}
        self.simulation.kill(power=True)
        for path, content in before.items():
            if content:
                kept = disk.content(path)
                try:
                    decode_offsets(kept)
                except CorruptMessage:
                    kept = b""
                self.check(kept, f"{path} is lost")

    async def _recover(self) -> None:
        """Restart after a crash, and compare what is there with what was promised."""
        await self.close_clients()
        self.crash()
        await self._start_again()

    async def _start_again(self) -> None:
        """Start, sometimes with a rotten bit in the node's own files, and check everything."""
        if not await self.node_rot.strike():
            await self.start()
        await self.open_clients()
        await self.checks.everything()

    def _log_of(self, partition: TopicPartition) -> Any:
        """Return a partition's log in the node's memory, None without one."""
        broker = getattr(self.simulation.node, "broker", None)
        found = None if broker is None else broker.replicas.find(*partition)
        return None if found is None else found.log

    def _note_flushed(self) -> None:
        """Note up to where the node flushed each partition, as it knew when it died."""
        every = [one for topic in self.topics.values() for one in topic.partitions]
        for partition in (*every, *(group.offsets_partition for group in self.groups)):
            log = self._log_of(partition)
            if log is not None:
                known = self._flushed.get(partition, 0)
                self._flushed[partition] = max(known, log.recovery_point)

    def _forget_unflushed(self) -> None:
        """Promise no longer what a power cut may take: records and commits not flushed."""
        for topic in self.topics.values():
            topic.forget_unflushed(self._flushed)
        for group in self.groups:
            group.forget_unflushed(self._flushed.get(group.offsets_partition, 0))

    def truncated(self, partition: TopicPartition, end_offset: int) -> None:
        """Promise no longer what a repair cut off a partition of the offsets topic."""
        if partition in self._flushed:
            self._flushed[partition] = min(self._flushed[partition], end_offset)
        for group in self.groups:
            if group.offsets_partition == partition:
                group.truncated(end_offset)

    # Clients

    async def open_clients(self) -> None:
        """Start a producer, an admin client and two members."""
        simulation = self.simulation
        self._producer = await simulation.producer(
            **QUICK, delivery_timeout_ms=4000, linger_ms=1, max_block_ms=3000
        ).start()
        self.admin = simulation.admin(**QUICK)
        self.members = [await self._new_member(), await self._new_member()]

    async def _new_member(self) -> AsyncConsumer:
        return await self.simulation.consumer(
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=2000,
            heartbeat_interval_ms=300,
            max_poll_interval_ms=4000,
            metadata_max_age_ms=3000,
            default_api_timeout_ms=3000,
            fetch_max_wait_ms=50,
            **QUICK,
        ).start()

    async def close_clients(self) -> None:
        """Close all clients."""
        for client in (self._producer, self.admin, *self.members):
            if client is not None:
                await self._close(client)
        self.members = []

    async def _close(self, client: AsyncProducer | AsyncConsumer | AsyncAdmin) -> None:
        closing = self.simulation.loop.create_task(client.close())
        await asyncio.wait((closing,), timeout=10)
        if closing.done() and not closing.cancelled():
            closing.exception()
        closing.cancel()

    async def attempt(self, work: Awaitable[Any]) -> tuple[Any, KafkaError | None]:
        """Return (result, None) or (None, the error); a time-out counts as one."""
        try:
            return await asyncio.wait_for(work, 20), None
        except KafkaError as error:
            return None, error
        except TimeoutError:
            return None, KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    # Steps

    async def _step(self) -> None:
        steps: tuple[tuple[Callable[[], Awaitable[None]], int], ...] = (
            (self._produce, 12),
            (self._consume, 6),
            (self._commit, 4),
            (self._commit_other, 1),
            (self._create_topic, 1),
            (self._delete_topic, 1),
            (self._alter_topic, 1),
            (self._add_partition, 1),
            (self._change_members, 1),
            (self._restart, 1),
            (self._wait, 2),
            (self._break_links, 1),
        )
        step = self.rng.choices([step for step, _ in steps], [weight for _, weight in steps])[0]
        await step()

    def _any_topic(self) -> TopicModel:
        return self.topics[self.rng.choice(list(self.topics))]

    async def _produce(self) -> None:
        """Send a few records at once; note which were acknowledged, and where."""
        topic, producer = self._any_topic(), self._producer
        assert producer is not None
        values = []
        for _ in range(self.rng.randrange(1, 8)):
            self._value_count += 1
            values.append(b"%d:" % self._value_count + self.rng.randbytes(self.rng.randrange(200)))
        topic.sent.update(values)
        partition = self.rng.choice((None, self.rng.randrange(topic.partition_count)))
        results = await asyncio.gather(
            *(
                self.attempt(producer.send_and_wait(topic.name, one, partition=partition))
                for one in values
            )
        )
        last: dict[int, int] = {}
        for value, (found, _error) in zip(values, results, strict=True):
            if found is not None:
                rises = found.offset > last.get(found.partition, -1)
                self.check(rises, f"offsets of {topic.name}-{found.partition} do not rise")
                last[found.partition] = found.offset
                topic.stored(value, Place(found.partition, found.offset))

    async def _consume(self) -> None:
        """Poll with every member of the group; all that comes was sent."""
        await asyncio.gather(*(self.poll(member) for member in self.members))

    async def poll(self, consumer: AsyncConsumer) -> None:
        """Poll with one member."""
        consumer.subscribe(list(self.topics))
        records, error = await self.attempt(consumer.poll(0.5))
        if error is not None and consumer.assignment:
            damaged = {
                TopicPartition(topic.name, number)
                for topic in self.topics.values()
                for number in topic.damaged
            }
            consumer.pause(*sorted(damaged & consumer.assignment))
        last: dict[TopicPartition, int] = {}
        for record in records or ():
            topic = self.topics.get(record.topic)
            if topic is None:
                continue
            place = TopicPartition(record.topic, record.partition)
            self.check(record.value in topic.sent, f"{place} holds a record that was never sent")
            self.check(record.offset > last.get(place, -1), f"{place} is read out of order")
            last[place] = record.offset

    async def _commit(self) -> None:
        """Commit a member's positions; a look-up finds an acknowledged commit from then on."""
        consumer, group = self.rng.choice(self.members), self.groups[0]
        offsets: dict[TopicPartition, int] = {}
        for partition in sorted(consumer.assignment):
            position, error = await self.attempt(consumer.position(partition))
            commits = group.commits.setdefault(partition, CommitModel())
            if error is None and position > commits.promised and partition.topic in self.topics:
                offsets[partition] = position
        if offsets:
            await self._commit_offsets(group, offsets, consumer.commit(offsets))

    async def _commit_other(self) -> None:
        """Commit for the group without members; its offsets rise by one."""
        assert self.admin is not None
        group = self.groups[1]
        offsets = {}
        for partition in self._any_topic().partitions:
            commits = group.commits.setdefault(partition, CommitModel())
            offsets[partition] = max(commits.sent, default=0) + 1
        work = self.admin.alter_group_offsets(group.name, offsets)
        await self._commit_offsets(group, offsets, work)

    async def _commit_offsets(
        self, group: GroupModel, offsets: dict[TopicPartition, int], work: Awaitable[Any]
    ) -> None:
        for partition, offset in offsets.items():
            group.commits[partition].sent.add(offset)
        found, error = await self.attempt(work)
        log = self._log_of(group.offsets_partition)
        if error is None and log is not None and not any((found or {}).values()):
            for partition, offset in offsets.items():
                group.commits[partition].acknowledged.append(Commit(offset, log.log_end_offset))

    async def _create_topic(self) -> None:
        """Create a topic; sometimes under the name of a deleted one."""
        assert self.admin is not None
        if self._deleted_names and self.rng.random() < 0.5:
            name = self._deleted_names.pop()
        else:
            self._topic_count += 1
            name = f"topic-{self._topic_count}"
        self.uncertain_topics.add(name)
        count = self.rng.randrange(1, MAX_PARTITIONS + 1)
        configs = {"internal.segment.bytes": 16384}
        _, error = await self.attempt(self.admin.create_topic(name, count, configs=configs))
        if error is None:
            self.uncertain_topics.discard(name)
            self.topics[name] = TopicModel(name, count)

    async def _delete_topic(self) -> None:
        assert self.admin is not None
        if len(self.topics) < 3:
            return
        topic = self._any_topic()
        self.uncertain_topics.add(topic.name)
        del self.topics[topic.name]
        for group in self.groups:
            group.forget_topic(topic.name)
        for partition in [one for one in self._flushed if one.topic == topic.name]:
            del self._flushed[partition]
        found, error = await self.attempt(self.admin.delete_topics([topic.name]))
        if error is None and found[topic.name] is None:
            self.uncertain_topics.discard(topic.name)
            self._deleted_names.append(topic.name)

    async def _alter_topic(self) -> None:
        assert self.admin is not None
        topic = self._any_topic()
        value = str(self.rng.randrange(1 << 20, 1 << 30))
        topic.possible_settings.add(value)
        changes = {resource(topic.name): {"retention.bytes": value}}
        _, error = await self.attempt(self.admin.alter_configs(changes))
        if error is None:
            topic.possible_settings = {value}

    async def _add_partition(self) -> None:
        assert self.admin is not None
        topic = self._any_topic()
        count = topic.partition_count + 1
        if count > MAX_PARTITIONS:
            return
        found, error = await self.attempt(self.admin.create_partitions({topic.name: count}))
        if error is None and found[topic.name] is None:
            topic.partition_count = max(count, topic.partition_count)

    async def _change_members(self) -> None:
        """Let a member leave, or a new one join."""
        if len(self.members) > 1 and self.rng.random() < 0.5:
            await self._close(self.members.pop(self.rng.randrange(len(self.members))))
        elif len(self.members) < MAX_MEMBERS:
            self.members.append(await self._new_member())

    async def _restart(self) -> None:
        """Stop the node cleanly, sometimes cut the power then, and start it again."""
        await self.close_clients()
        try:
            await self.simulation.stop()
        except SimulatedCrash:
            self.crash()
        else:
            if self.rng.random() < self._power_probability:
                self._cut_power()
            is_clean = self.simulation.disk.exists(CLEAN_MARKER)
            self.check(is_clean or self.rot_count, "a clean stop leaves no marker")
        await self._start_again()

    async def _wait(self) -> None:
        await asyncio.sleep(self.rng.random() * 2)

    async def _break_links(self) -> None:
        self.simulation.network.break_links()


def _group(name: str) -> GroupModel:
    return GroupModel(name, TopicPartition(OFFSETS_TOPIC, partition_for(name, _OFFSETS_PARTITIONS)))


def resource(topic: str) -> ConfigResource:
    """Return a topic as its settings are addressed."""
    return ConfigResource(ResourceType.TOPIC, topic)
