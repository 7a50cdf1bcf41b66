"""Lines at DEBUG: why a poll returns no records."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from ottla import AsyncConsumer, Consumer, TopicPartition
from ottla.clients.consumer.classic_group import ClassicMembership
from ottla.clients.consumer.explanation import why_no_records
from ottla.clients.membership.classic import GroupState
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.records.builder import encode_batch
from tests.clients.simulated import NEVER_ANSWER, FakeCluster
from tests.clients.simulated_consumer import SimulatedConsumer
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from ottla.clients.consumer.core import ConsumerCore
    from ottla.testing.kafka import Kafka

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def _why(core: ConsumerCore) -> str:
    committed_only = core.settings.isolation_level == "read_committed"
    return why_no_records(core.client, core.subscription, core.group, committed_only=committed_only)


def _consumer(partitions: int = 2, **settings: object) -> SimulatedConsumer:
    cluster = FakeCluster()
    cluster.create("t", partitions)
    return SimulatedConsumer(cluster, **settings)


def test_assigned_partitions() -> None:
    """Paused, at the end, and with records that have arrived."""
    consumer = _consumer()
    consumer.core.assign([T0, T1])
    assert _why(consumer.core).startswith("cannot reach broker:9001")
    consumer.settle(2)
    consumer.sim.run_for(600)
    both = _why(consumer.core)
    assert both == "t-0, t-1: all records are read, up to offset 0"
    consumer.core.subscription.state(T0).paused = True
    consumer.sim.cluster.logs[T1].append(bytes(encode_batch([(1000, None, b"v", ())])))
    consumer.sim.run_for(600)
    expected = "t-1: its records have arrived, poll again; t-0: paused"
    assert _why(consumer.core) == expected


def test_positions_that_are_not_known() -> None:
    """A leader that does not answer."""
    consumer = _consumer(1)
    consumer.sim.cluster.faults[ListOffsetsRequest] = [NEVER_ANSWER]
    consumer.core.assign([T0])
    consumer.sim.run_for(200)
    assert _why(consumer.core) == "t-0: its position is being looked up"
    consumer.sim.cluster.faults[FetchRequest] = [NEVER_ANSWER]
    consumer.core.seek(T0, 7)
    consumer.sim.run_for(200)
    assert _why(consumer.core) == "t-0: waits for the leader's response at offset 7"


def test_an_open_transaction() -> None:
    """With isolation.level=read_committed."""
    consumer = _consumer(1, isolation_level="read_committed")
    consumer.core.assign([T0])
    consumer.settle(1)
    state = consumer.core.subscription.state(T0)
    state.high_watermark, state.last_stable_offset = 5, 0
    expected = "t-0: an open transaction holds back the records from offset 0 on"
    assert _why(consumer.core) == expected
    state.last_stable_offset = 5
    assert _why(consumer.core) == "t-0: waits for records from offset 0 of 5"


def test_topics_that_do_not_exist() -> None:
    """By name and by pattern."""
    consumer = _consumer()
    consumer.core.subscribe(["missing"], None, None)
    consumer.sim.run_for(500)
    assert _why(consumer.core).startswith("topic 'missing': it does not exist")
    other = _consumer()
    other.core.subscribe(None, "x.*", None)
    other.sim.run_for(500)
    assert _why(other.core).startswith("no topic matches 'x.*'")


def test_a_group() -> None:
    """Without a coordinator, while it rebalances, and when others have all partitions."""
    consumer = _consumer()
    core = consumer.core
    core.subscribe(["t"], None, None)
    consumer.sim.run(lambda: core.client.metadata.partition_count("t"))
    assert isinstance(core.group, ClassicMembership)
    assert core.coordinator is not None
    core.coordinator.node = None
    assert _why(core) == "the coordinator of the group is not known"
    core.coordinator.node = core.client.metadata.brokers[1]
    core.group.state = GroupState.JOINING
    assert _why(core) == "the group rebalances, this member is joining"
    core.group.state = GroupState.STABLE
    assert _why(core) == "the group has assigned all partitions to other members"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_program_sees_it_in_its_log(
    kafka: Kafka, caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    """Lines of each context, the cause at last."""
    topic, group = str(kafka.topic("empty")), kafka.group()
    settings = {**kafka.client_settings, "group.id": group}

    async def work() -> None:
        async with AsyncConsumer(topic, config=settings) as consumer:
            while not consumer.assignment or consumer.lag(TopicPartition(topic, 0)) is None:
                assert not await consumer.poll(0.01)
            assert not await consumer.poll(0)

    with caplog.at_level(logging.DEBUG, "ottla.clients"):
        if is_async:
            asyncio.run(work())
        else:
            with Consumer(topic, config=settings) as consumer:
                while not consumer.assignment or consumer.lag(TopicPartition(topic, 0)) is None:
                    assert not consumer.poll(0.01)
                assert not consumer.poll(0)
    lines = [(one.name, one.getMessage()) for one in caplog.records]
    prefix = f"[Consumer clientId=ottla-consumer, groupId={group}] "
    cause = f"{prefix}poll returns no records: {topic}-0: all records are read, up to offset 0"
    assert ("ottla.clients.consumer", cause) in lines
    assert ("ottla.clients.group", f"{prefix}generation 1 assigns {topic}-0") in lines
    names = {name for name, _ in lines}
    assert {f"ottla.clients.{name}" for name in ("connection", "metadata", "fetch")} <= names


def test_getone_and_getmany(kafka: Kafka) -> None:
    """As aiokafka's: by partition, of some partitions, one after the other."""
    topic = kafka.topic("get", partitions=2)
    topic.produce(["a", "b"], partition=0).produce(["c"], partition=1)
    first, second = (TopicPartition(str(topic), number) for number in (0, 1))

    async def work() -> None:
        settings = {**kafka.client_settings, "auto.offset.reset": "earliest"}
        async with AsyncConsumer(config=settings) as consumer:
            consumer.assign([first, second])
            assert (await consumer.getone(second)).value == b"c"
            assert (await consumer.getone()).value == b"a"
            found = await consumer.getmany(timeout_ms=WAIT_S * 1000)
            assert {one: [r.value for r in records] for one, records in found.items()} == {
                first: [b"b"]
            }
            assert await consumer.getmany(second) == {}

    asyncio.run(work())
