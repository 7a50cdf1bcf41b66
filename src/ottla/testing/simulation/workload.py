"""A seeded workload on a simulated node: clients, crashes, and what must hold after each.

Invariants: what a killed process acknowledged is there after its restart, and after a power cut
everything that was flushed; what consumers read was produced, whole and in order of its offsets;
an idempotent producer writes nothing twice; committed offsets do not regress while the node lives,
and return to no value that was never committed; acknowledged topics and settings stay.

Kafka: none; after its system tests' verifiable clients.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.testing.disk import SimulatedCrash
from ottla.testing.simulation.node import SimulatedNode
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ottla.clients.admin.admin import AsyncAdmin
    from ottla.clients.consumer.consumer import AsyncConsumer
    from ottla.clients.producer.producer import AsyncProducer

GROUP = "group"
_SMALL: Mapping[str, str] = {
    "log.index.interval.bytes": "512",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "offsets.topic.num.partitions": "2",
    "group.min.session.timeout.ms": "1000",
    "auto.create.topics.enable": "false",
    "log.flush.interval.ms": "400",
    "log.flush.scheduler.interval.ms": "100",
}
"""Small files, so that a short run rolls, flushes, snapshots and recovers them."""
_QUICK: Mapping[str, Any] = {
    "request_timeout_ms": 3000,
    "retry_backoff_ms": 50,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
}
_READ_LIMIT_S = 120


class InvariantViolated(AssertionError):
    """What was promised does not hold; the text names the seed."""


class Sent(NamedTuple):
    """A record that was sent: its value, and its offset once acknowledged."""

    value: bytes
    offset: int | None


class TopicModel:
    """What the workload knows of one topic of one partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: set[bytes] = set()
        self.acknowledged: dict[bytes, int] = {}
        """Value → offset."""
        self.possible_settings = {"-1"}
        """Values of retention.bytes: the last acknowledged one, and those not answered since."""

    @property
    def partition(self) -> TopicPartition:
        """The only partition."""
        return TopicPartition(self.name, 0)


class Workload:
    """`run` drives one seed to its end and raises InvariantViolated when a promise is broken."""

    def __init__(
        self,
        seed: int,
        *,
        steps: int = 60,
        crash_probability: float = 0.08,
        power_probability: float = 0.5,
        keep_lines: bool = False,
    ) -> None:
        """Take a seed and how rough the run is; keep_lines keeps the trace's text."""
        self.seed = seed
        self.simulation = SimulatedNode(seed, config=_SMALL, keep_lines=keep_lines)
        self.rng = Random(f"{seed}/workload")  # noqa: S311 - repeatable on purpose
        self.topics: dict[str, TopicModel] = {}
        self.uncertain_topics: set[str] = set()
        """Topics whose creation or deletion was not answered."""
        self.committed: dict[TopicPartition, int] = {}
        self.commits_sent: dict[TopicPartition, set[int]] = {}
        self.crash_count = 0
        self._flushed: dict[str, int] = {}
        """By topic: the offset up to which everything was flushed when the node died."""
        self._steps = steps
        self._crash_probability = crash_probability
        self._power_probability = power_probability
        self._value_count = 0
        self._topic_count = 0
        self._producer: AsyncProducer | None = None
        self._admin: AsyncAdmin | None = None
        self._consumer: AsyncConsumer | None = None

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
        simulation = self.simulation
        await self._start()
        await self._open_clients()
        await self._create_topic()
        for _ in range(self._steps):
            if self.rng.random() < self._crash_probability:
                calls = simulation.disk.calls
                simulation.disk.crash_at(calls + self.rng.randrange(1, 40))
            await self._step()
            if not simulation.is_alive:
                await self._recover()
        simulation.disk.heal()
        await self._check_everything()
        await self._close_clients()
        await simulation.stop()

    async def _start(self) -> None:
        """Start, and again when a fault strikes meanwhile."""
        while True:
            try:
                await self.simulation.start()
            except SimulatedCrash:
                self._crash()
            else:
                self.simulation.disk.heal()
                return

    def _crash(self) -> None:
        """Kill the process or cut the power; sometimes let the next start crash as well."""
        self.crash_count += 1
        power = self.rng.random() < self._power_probability
        self.simulation.kill(power=power)
        if power:
            self._forget_unflushed()
        if self.rng.random() < 0.3:
            disk = self.simulation.disk
            disk.crash_at(disk.calls + self.rng.randrange(1, 60))

    async def _recover(self) -> None:
        """Restart after a crash, and compare what is there with what was promised."""
        self._flushed = {name: self._recovery_point(name) for name in self.topics}
        await self._close_clients()
        self._crash()
        await self._start()
        await self._open_clients()
        await self._check_everything()

    def _recovery_point(self, name: str) -> int:
        """Return up to which offset the node flushed a topic, as it knew when it died."""
        node = self.simulation.node
        broker = getattr(node, "broker", None)
        partition = None if broker is None else broker.replicas.find(name, 0)
        return 0 if partition is None else int(partition.log.recovery_point)

    def _forget_unflushed(self) -> None:
        """Promise no longer what a power cut may take: records and commits not flushed."""
        for name, topic in self.topics.items():
            topic.acknowledged = {
                value: offset
                for value, offset in topic.acknowledged.items()
                if offset < self._flushed.get(name, 0)
            }
        self.committed.clear()

    # Clients

    async def _open_clients(self) -> None:
        simulation = self.simulation
        self._producer = await simulation.producer(
            **_QUICK, delivery_timeout_ms=4000, linger_ms=1, max_block_ms=3000
        ).start()
        self._admin = simulation.admin(**_QUICK)
        self._consumer = await simulation.consumer(
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=2000,
            heartbeat_interval_ms=300,
            default_api_timeout_ms=3000,
            fetch_max_wait_ms=50,
            **_QUICK,
        ).start()

    async def _close_clients(self) -> None:
        for client in (self._producer, self._admin, self._consumer):
            if client is not None:
                closing = self.simulation.loop.create_task(client.close())
                await asyncio.wait((closing,), timeout=10)
                if closing.done() and not closing.cancelled():
                    closing.exception()
                closing.cancel()

    async def _attempt(self, work: Awaitable[Any]) -> tuple[Any, KafkaError | None]:
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
            (self._create_topic, 1),
            (self._delete_topic, 1),
            (self._alter_topic, 1),
            (self._wait, 2),
            (self._break_links, 1),
        )
        step = self.rng.choices([step for step, _ in steps], [weight for _, weight in steps])[0]
        await step()

    def _any_topic(self) -> TopicModel | None:
        return self.topics[self.rng.choice(list(self.topics))] if self.topics else None

    async def _produce(self) -> None:
        """Send a few records at once; note which were acknowledged, and where."""
        topic = self._any_topic()
        if topic is None or self._producer is None:
            return
        values = []
        for _ in range(self.rng.randrange(1, 8)):
            self._value_count += 1
            values.append(b"%d:" % self._value_count + self.rng.randbytes(self.rng.randrange(200)))
        topic.sent.update(values)
        results = await asyncio.gather(
            *(self._attempt(self._producer.send_and_wait(topic.name, one)) for one in values)
        )
        last = -1
        for value, (found, _error) in zip(values, results, strict=True):
            if found is not None:
                self.check(found.offset > last, f"offsets of {topic.name} do not rise")
                last = found.offset
                topic.acknowledged[value] = found.offset

    async def _consume(self) -> None:
        """Poll as a member of the group; all that comes was sent."""
        consumer = self._consumer
        if consumer is None or not self.topics:
            return
        consumer.subscribe(list(self.topics))
        records, _ = await self._attempt(consumer.poll(0.5))
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
        """Commit the positions; an acknowledged commit is what a look-up finds from then on."""
        consumer = self._consumer
        if consumer is None:
            return
        offsets: dict[TopicPartition, int] = {}
        for partition in sorted(consumer.assignment):
            position, error = await self._attempt(consumer.position(partition))
            if error is None and position > self.committed.get(partition, -1):
                offsets[partition] = position
        if not offsets:
            return
        for partition, offset in offsets.items():
            self.commits_sent.setdefault(partition, set()).add(offset)
        _, error = await self._attempt(consumer.commit(offsets))
        if error is None:
            self.committed.update(offsets)

    async def _create_topic(self) -> None:
        assert self._admin is not None
        self._topic_count += 1
        name = f"topic-{self._topic_count}"
        self.uncertain_topics.add(name)
        _, error = await self._attempt(
            self._admin.create_topic(name, 1, configs={"internal.segment.bytes": 16384})
        )
        if error is None:
            self.uncertain_topics.discard(name)
            self.topics[name] = TopicModel(name)

    async def _delete_topic(self) -> None:
        assert self._admin is not None
        if len(self.topics) < 3:
            return
        topic = self._any_topic()
        assert topic is not None
        self.uncertain_topics.add(topic.name)
        del self.topics[topic.name]
        self.committed.pop(topic.partition, None)
        self.commits_sent.pop(topic.partition, None)
        await self._attempt(self._admin.delete_topics([topic.name]))

    async def _alter_topic(self) -> None:
        assert self._admin is not None
        topic = self._any_topic()
        if topic is None:
            return
        value = str(self.rng.randrange(1 << 20, 1 << 30))
        topic.possible_settings.add(value)
        _, error = await self._attempt(
            self._admin.alter_configs({_resource(topic.name): {"retention.bytes": value}})
        )
        if error is None:
            topic.possible_settings = {value}

    async def _wait(self) -> None:
        await asyncio.sleep(self.rng.random() * 2)

    async def _break_links(self) -> None:
        self.simulation.network.break_links()

    # Checks

    async def _check_everything(self) -> None:
        """Hold metadata, records and commits against the model."""
        await self._check_topics()
        for topic in list(self.topics.values()):
            await self._check_records(topic)
        await self._check_commits()

    async def _check_topics(self) -> None:
        assert self._admin is not None
        names = {topic.name for topic in await self._admin.list_topics()}
        for name in self.topics:
            self.check(name in names, f"the topic {name} is gone")
        known = set(self.topics) | self.uncertain_topics
        ours = {name for name in names if name.startswith("topic-")}
        self.check(ours <= known, f"topics came from nowhere: {sorted(ours - known)}")
        resources = {name: _resource(name) for name in self.topics}
        found = await self._admin.describe_configs(resources.values())
        for name, topic in self.topics.items():
            entries = found[resources[name]]
            if isinstance(entries, KafkaError):
                raise entries
            value = entries["retention.bytes"].value
            self.check(
                value in topic.possible_settings, f"retention.bytes of {name} is {value} again"
            )

    async def _check_records(self, topic: TopicModel) -> None:
        """Read a topic from its start; no gap, nothing twice, nothing lost."""
        values = await self._read(topic)
        self.check(len(set(values)) == len(values), f"{topic.name} holds a record twice")
        self.check(topic.sent.issuperset(values), f"{topic.name} holds what was never sent")
        for value, offset in topic.acknowledged.items():
            self.check(
                offset < len(values) and values[offset] == value,
                f"{topic.name} lost the acknowledged record at {offset} of {len(values)}",
            )

    async def _read(self, topic: TopicModel) -> list[bytes]:
        consumer = await self.simulation.consumer(
            auto_offset_reset="earliest", fetch_max_wait_ms=20, **_QUICK
        ).start()
        values: list[bytes] = []
        try:
            consumer.assign([topic.partition])
            async with asyncio.timeout(_READ_LIMIT_S):
                end = (await consumer.end_offsets([topic.partition]))[topic.partition]
                consumer.seek(topic.partition, 0)
                while len(values) < end:
                    for record in await consumer.poll(0.5):
                        self.check(
                            record.offset == len(values), f"{topic.name} has a gap at {len(values)}"
                        )
                        values.append(record.value)
        except CorruptMessage as error:
            raise InvariantViolated(f"Workload({self.seed}): {error}") from error
        finally:
            await consumer.close()
        return values

    async def _check_commits(self) -> None:
        assert self._consumer is not None
        found = await self._consumer.committed(list(self.committed))
        for partition, offset in self.committed.items():
            entry = found[partition]
            number = -1 if entry is None else entry.offset
            sent = self.commits_sent.get(partition, set())
            self.check(number in sent | {-1}, f"{partition} has an offset that was never committed")
            self.check(number >= offset, f"{partition}: the commit {offset} is now {number}")


def _resource(topic: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, topic)
