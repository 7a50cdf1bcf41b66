"""The native share consumers (KIP-932) on a whole node."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from ottla import (
    AcknowledgeType,
    Admin,
    AsyncShareConsumer,
    ConfigError,
    ConfigResource,
    GroupDescription,
    GroupIdNotFoundError,
    GroupNotEmptyError,
    IllegalStateError,
    KafkaError,
    NewTopic,
    Producer,
    RecordDeserializationError,
    ResourceType,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
    WakeupError,
)
from ottla.clients.admin.share_groups import SharePartitionOffset
from ottla.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.assignment.interval.ms": "0",
    "group.share.record.lock.duration.ms": "30000",
    "group.share.initialize.retry.interval.ms": "1000",
}
EARLIEST = {"share.auto.offset.reset": "earliest"}


class Shared:
    """A node, with a topic for each test."""

    def __init__(self, cluster: Cluster, admin: Admin) -> None:
        self.bootstrap, self.clock = cluster.bootstrap, cluster.clock
        self.admin = admin
        self._count = 0

    def topic(self, count: int = 10, partitions: int = 1) -> str:
        """Create a topic with records, and a group of the same name that begins with the first."""
        self._count += 1
        name = f"shared-{self._count}"
        self.admin.create_topics([NewTopic(name, partitions, 1)])
        self.admin.alter_configs({ConfigResource(ResourceType.GROUP, name): EARLIEST})
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for index in range(count):
                producer.send(name, f"{index}".encode(), partition=index % partitions)
        return name

    def consumer(self, topic: str, mode: str = "implicit", **settings: Any) -> ShareConsumer:
        """Return a member of the topic's group."""
        given = {"share_acknowledgement_mode": mode, "fetch_max_wait_ms": 50, **settings}
        return ShareConsumer(topic, bootstrap_servers=self.bootstrap, group_id=topic, **given)


@pytest.fixture(name="shared", scope="module")
def _shared() -> Iterator[Shared]:
    with Cluster(config=SETTINGS) as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        yield Shared(cluster, admin)


def poll_until(consumer: ShareConsumer, condition: Callable[[list[ShareRecord]], bool]) -> Any:
    """Poll until the records so far fulfil a condition; return them."""
    found: list[ShareRecord] = []
    end = time.monotonic() + 60
    while not condition(found):
        assert time.monotonic() < end
        found += consumer.poll(0.2)
    return found


def values(records: list[ShareRecord]) -> list[int]:
    return sorted(int(record.value) for record in records)


def test_polls_accept_what_the_last_one_returned(shared: Shared) -> None:
    """Implicit mode; a commit accepts the rest, and another member gets nothing of it."""
    topic = shared.topic(10, partitions=2)
    with shared.consumer(topic) as consumer:
        found = poll_until(consumer, lambda records: len(records) == 10)
        assert values(found) == list(range(10))
        assert {record.delivery_count for record in found} == {1}
        assert consumer.acquisition_lock_timeout_ms == 30_000
        outcome = consumer.commit()
        assert set(outcome.values()) == {None}
        assert consumer.commit() == {}
        with pytest.raises(IllegalStateError, match="Implicit acknowledgement"):
            consumer.acknowledge(found[0])
    with shared.consumer(topic) as other:
        assert other.poll(0.5) == []


def test_close_releases_what_was_not_accepted(shared: Shared) -> None:
    """The records are delivered to the next member, with a higher count."""
    topic = shared.topic(3)
    with shared.consumer(topic) as consumer:
        assert values(poll_until(consumer, lambda records: len(records) == 3)) == [0, 1, 2]
    with shared.consumer(topic) as other:
        found = poll_until(other, lambda records: len(records) == 3)
        assert {record.delivery_count for record in found} == {2}


def test_unsubscribing_releases_and_allows_another_subscription(shared: Shared) -> None:
    """The records come again at once, not after their locks."""
    topic = shared.topic(3)
    with shared.consumer(topic, "explicit") as consumer:
        first = poll_until(consumer, lambda records: len(records) == 3)
        consumer.acknowledge(first[0])
        consumer.unsubscribe()
        consumer.subscribe(topic)
        again = poll_until(consumer, bool)
        assert [(one.offset, one.delivery_count) for one in again] == [(1, 2), (2, 2)]
        for record in again:
            consumer.acknowledge(record)


def test_each_record_is_accepted_released_or_rejected(shared: Shared) -> None:
    """Explicit mode: all records need a decision; what is released comes again."""
    topic = shared.topic(3)
    answers: list[tuple[dict[TopicPartition, frozenset[int]], KafkaError | None]] = []
    with shared.consumer(topic, "explicit") as consumer:
        consumer.set_acknowledgement_callback(lambda *answer: answers.append(answer))
        first, second, third = poll_until(consumer, lambda records: len(records) == 3)
        consumer.acknowledge(first)
        consumer.acknowledge(second, AcknowledgeType.RELEASE)
        with pytest.raises(IllegalStateError, match="All records must be acknowledged"):
            consumer.poll(0)
        consumer.acknowledge(third, AcknowledgeType.REJECT)
        again = poll_until(consumer, bool)
        assert [(record.offset, record.delivery_count) for record in again] == [(1, 2)]
        with pytest.raises(IllegalStateError, match="cannot be acknowledged"):
            consumer.acknowledge(first)
        consumer.acknowledge(again[0])
        assert consumer.commit() == {TopicPartition(topic, 0): None}
    partition = TopicPartition(topic, 0)
    assert answers == [
        ({partition: frozenset({0, 1, 2})}, None),
        ({partition: frozenset({1})}, None),
    ]


def test_a_lock_is_renewed_or_times_out(shared: Shared) -> None:
    """A renewed record comes again in this member, without another delivery."""
    topic = shared.topic(2)
    with shared.consumer(topic, "explicit") as consumer:
        first, second = poll_until(consumer, lambda records: len(records) == 2)
        consumer.acknowledge(first, AcknowledgeType.RENEW)
        consumer.acknowledge(second)
        again = poll_until(consumer, bool)
        assert [(record.offset, record.delivery_count) for record in again] == [(0, 1)]
        with shared.consumer(topic) as other:
            shared.clock.advance(seconds=31)
            late = poll_until(other, bool)
            assert [record.offset for record in late] == [0]
            assert late[0].delivery_count > 1  # more where a busy machine lets the lock pass again
            consumer.acknowledge(again[0])
            outcome = consumer.commit()
        assert isinstance(outcome[TopicPartition(topic, 0)], KafkaError)


def test_record_limit_bounds_each_poll(shared: Shared) -> None:
    """With batch_optimized a poll may return a whole batch."""
    topic = shared.topic(10)
    settings: dict[str, Any] = {"max_poll_records": 3, "share_acquire_mode": "record_limit"}
    with shared.consumer(topic, "implicit", **settings) as consumer:
        sizes: list[int] = []
        while sum(sizes) < 10:
            sizes.append(len(consumer.poll(0.2)))
        assert max(sizes) == 3


def test_records_that_cannot_be_read_are_released(shared: Shared) -> None:
    """The error names the offset, on which the user may decide otherwise."""
    topic = shared.topic(2)

    def to_number(value: bytes) -> int:
        if value == b"1":
            raise ValueError("no number")
        return int(value)

    with shared.consumer(topic, "explicit", value_deserializer=to_number) as consumer:
        found = poll_until(consumer, bool)
        assert [record.value for record in found] == [0]
        consumer.acknowledge(found[0])
        with pytest.raises(RecordDeserializationError, match="no number"):
            poll_until(consumer, bool)
        consumer.acknowledge_offset(topic, 0, 1, AcknowledgeType.REJECT)
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        assert consumer.poll(0.3) == []


def test_two_members_of_asyncio_share_one_partition(shared: Shared) -> None:
    """Together they get each record once."""
    topic = shared.topic(200)

    async def consume() -> list[int]:
        found: list[int] = []

        async def member() -> None:
            settings: Any = {"max_poll_records": 10, "share_acquire_mode": "record_limit"}
            async with AsyncShareConsumer(
                topic, bootstrap_servers=shared.bootstrap, group_id=topic, **settings
            ) as consumer:
                while len(found) < 200:
                    found.extend(values(await consumer.poll(0.1)))
                await consumer.commit()

        await asyncio.wait_for(asyncio.gather(member(), member()), 60)
        return sorted(found)

    assert asyncio.run(consume()) == list(range(200))


@pytest.mark.parametrize("kind", [ShareConsumer, AsyncShareConsumer])
def test_a_callback_that_raises_costs_no_record(shared: Shared, kind: type) -> None:
    """The poll that raises has taken records: the next one returns them before it accepts them."""
    topic = shared.topic(4)
    raised: list[object] = []

    def callback(*answer: object) -> None:
        if not raised:
            raised.append(answer)
            raise ZeroDivisionError

    settings: dict[str, Any] = {"share_acquire_mode": "record_limit", "max_poll_records": 2}
    found: list[ShareRecord] = []
    end = time.monotonic() + 60

    def read() -> None:
        with shared.consumer(topic, **settings) as consumer:
            consumer.set_acknowledgement_callback(callback)
            while len(found) < 4 and time.monotonic() < end:
                with suppress(ZeroDivisionError):
                    found.extend(consumer.poll(0.2))

    async def read_async() -> None:
        values = {**settings, "bootstrap_servers": shared.bootstrap, "group_id": topic}
        async with AsyncShareConsumer(topic, config=values) as consumer:
            consumer.set_acknowledgement_callback(callback)
            while len(found) < 4 and time.monotonic() < end:
                with suppress(ZeroDivisionError):
                    found.extend(await consumer.poll(0.2))

    read() if kind is ShareConsumer else asyncio.run(read_async())
    assert raised
    assert values(found) == list(range(4))
    assert {record.delivery_count for record in found} == {1}


class TwoAtATime:
    """Iterates over a member's records, and ends each iteration after two of them."""

    def __init__(self, shared: Shared, topic: str, mode: str) -> None:
        self.found: list[ShareRecord] = []
        self._mode = mode
        self._settings = {
            "bootstrap.servers": shared.bootstrap,
            "group.id": topic,
            "share.acknowledgement.mode": mode,
        }
        self._topic = topic

    def _take(self, consumer: ShareConsumer | AsyncShareConsumer, record: ShareRecord) -> bool:
        self.found.append(record)
        if self._mode == "explicit":
            consumer.acknowledge(record)
        return len(self.found) % 2 == 0

    def read(self, count: int) -> None:
        with ShareConsumer(self._topic, config=self._settings) as consumer:
            while len(self.found) < count:
                for record in consumer:
                    if self._take(consumer, record):
                        break
                assert set(consumer.commit().values()) == {None}

    async def read_async(self, count: int) -> None:
        async with AsyncShareConsumer(self._topic, config=self._settings) as consumer:
            while len(self.found) < count:
                async for record in consumer:
                    if self._take(consumer, record):
                        break
                assert set((await consumer.commit()).values()) == {None}


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
@pytest.mark.parametrize("is_async", [False, True])
def test_an_iteration_that_ends_early_accepts_what_it_returned(
    shared: Shared, mode: str, *, is_async: bool
) -> None:
    """The records after it are returned by the next iteration, and by no other delivery."""
    topic = shared.topic(6)
    reader = TwoAtATime(shared, topic, mode)
    if is_async:
        asyncio.run(asyncio.wait_for(reader.read_async(6), 60))
    else:
        reader.read(6)
    assert values(reader.found) == list(range(6))
    assert {record.delivery_count for record in reader.found} == {1}
    with shared.consumer(topic) as other:
        assert other.poll(0.5) == []


def test_calls_at_the_wrong_time_and_wrong_settings_are_refused(shared: Shared) -> None:
    """As by Kafka's share consumer."""
    with pytest.raises(ConfigError, match=r"auto.offset.reset cannot be set when using a share"):
        shared.consumer("t", auto_offset_reset="earliest")
    with pytest.raises(KafkaError, match=r"valid group\.id"):
        ShareConsumer("t", bootstrap_servers=shared.bootstrap)
    with ShareConsumer(bootstrap_servers=shared.bootstrap, group_id="g") as consumer:
        with pytest.raises(IllegalStateError, match="not subscribed to any topics"):
            consumer.poll(0)
        consumer.subscribe("missing")
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(1)
        consumer.unsubscribe()
        assert consumer.subscription == frozenset()


def test_the_admin_sees_and_changes_offsets_of_share_groups(shared: Shared) -> None:
    """Lag counts what was not completed; offsets change while there are no members."""
    topic = shared.topic(10)
    admin, partition = shared.admin, TopicPartition(topic, 0)
    with shared.consumer(topic) as consumer:
        poll_until(consumer, bool)
        consumer.commit()
        found = admin.describe_share_groups([topic, "absent"])
        described = found[topic]
        assert isinstance(described, GroupDescription)
        assert (described.state, described.type, described.assignor) == (
            "Stable",
            "Share",
            "simple",
        )
        assert [one.assignment for one in described.members] == [(partition,)]
        assert isinstance(found["absent"], GroupIdNotFoundError)
        with pytest.raises(GroupNotEmptyError):
            admin.alter_share_group_offsets(topic, {partition: 4})
    read = admin.list_share_group_offsets(topic)[partition]
    assert isinstance(read, SharePartitionOffset)
    assert read.lag == 0
    assert admin.alter_share_group_offsets(topic, {partition: 4}) == {partition: None}
    again = admin.list_share_group_offsets(topic, [partition])[partition]
    assert isinstance(again, SharePartitionOffset)
    assert (again.start_offset, again.lag) == (4, 6)
    assert admin.delete_share_group_offsets(topic, [topic]) == {topic: None}
    assert admin.list_share_group_offsets(topic, [partition]) == {partition: None}
    assert admin.delete_groups([topic]) == {topic: None}
