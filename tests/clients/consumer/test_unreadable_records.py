"""Unreadable records, abandoned iterators, and pending errors."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, AsyncConsumer, Consumer, Producer, TopicPartition
from ottla.clients.consumer.subscription import Subscription
from ottla.clients.offsets import OffsetAndMetadata
from ottla.errors import CorruptMessage, ErrorCode, KafkaError, RecordDeserializationError
from ottla.protocol.apis.fetch import FetchRequest, FetchResponse
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.records.builder import encode_batch
from ottla.testing.cluster import Cluster
from tests.clients.simulated import FakeCluster
from tests.clients.simulated_consumer import SimulatedConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla import ConsumerSettings

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def _write(cluster: FakeCluster, partition: TopicPartition, *values: bytes) -> None:
    records = [(1000, None, value, ()) for value in values]
    cluster.logs[partition].append(bytes(encode_batch(records)))


def _reader(cluster: FakeCluster, *partitions: TopicPartition, **settings: Any) -> Any:
    """Return a consumer that has fetched something of every partition."""
    consumer = SimulatedConsumer(cluster, **settings)
    consumer.core.assign(partitions)
    states = consumer.core.subscription.partitions.values()
    consumer.sim.run(lambda: all(state.buffered for state in states))
    return consumer


def _two() -> FakeCluster:
    cluster = FakeCluster()
    cluster.create("t", 2)
    return cluster


def _position(consumer: Any, partition: TopicPartition) -> int | None:
    position: int | None = consumer.core.subscription.state(partition).position
    return position


def test_a_value_that_cannot_be_read_costs_no_other_record() -> None:
    """The records before it, then its error at every poll; after a seek, the remaining ones."""
    cluster = _two()
    _write(cluster, T0, b"0", b"1", b"no json", b"3")
    consumer = _reader(cluster, T0, value_deserializer="json")
    assert [record.value for record in consumer.poll()] == [0, 1]
    assert _position(consumer, T0) == 2
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as caught:
            consumer.poll()
        error = caught.value
        assert "t-0 at offset 2: its value" in error.message
        assert (error.topic, error.partition, error.offset, error.part) == ("t", 0, 2, "value")
        assert isinstance(error.__cause__, json.JSONDecodeError)
        assert _position(consumer, T0) == 2
    consumer.core.seek(T0, 3)
    consumer.sim.run_for(100)
    assert [record.value for record in consumer.poll()] == [3]


def test_a_bad_value_takes_nothing_of_other_partitions_along() -> None:
    """Whichever partition comes first: every good record is delivered once, in order."""
    cluster = _two()
    _write(cluster, T0, b"0", b"no json")
    _write(cluster, T1, b"10", b"11", b"12")
    consumer = _reader(cluster, T0, T1, value_deserializer="json")
    got: list[Any] = []
    failed = 0
    for _ in range(6):
        try:
            got += [record.value for record in consumer.poll(2)]
        except RecordDeserializationError:
            failed += 1
            consumer.core.subscription.state(T0).paused = True
    assert sorted(got) == [0, 10, 11, 12]
    assert failed == 1


def test_a_key_is_named_as_what_cannot_be_read() -> None:
    """The error names the key or the value."""
    cluster = _two()
    cluster.logs[T0].append(bytes(encode_batch([(0, b"short", b"1", ())])))
    consumer = _reader(cluster, T0, key_deserializer="long")
    with pytest.raises(RecordDeserializationError, match="its key") as caught:
        consumer.poll()
    assert caught.value.part == "key"
    assert not caught.value.is_retriable


@pytest.mark.parametrize("first", [0, 1])
def test_a_corrupt_batch_is_neither_skipped_nor_takes_others_along(first: int) -> None:
    """Other partitions' records are returned; then the error, each time, until a seek."""
    cluster = _two()
    _write(cluster, T0, b"a0", b"a1")
    _write(cluster, T1, b"b0", b"b1")
    _write(cluster, T1, b"b2")
    broken = bytearray(cluster.logs[T1].batches[0])
    broken[-1] ^= 1
    cluster.logs[T1].batches[0] = bytes(broken)
    consumer = _reader(cluster, T0, T1)
    consumer.core.fetcher._turn = first
    got: list[bytes] = []
    failed = []
    for _ in range(5):
        try:
            got += [record.value for record in consumer.poll()]
        except CorruptMessage as error:
            failed.append(error.message)
    assert len(failed) >= 4
    assert all("t-1 at offset 0" in message for message in failed)
    assert _position(consumer, T1) == 0
    consumer.core.seek(T1, 2)
    consumer.sim.run_for(100)
    got += [record.value for record in consumer.poll()]
    assert sorted(got) == [b"a0", b"a1", b"b2"]


# ---------------------------------------------------------------- iterators


def _iterate(consumer: Any) -> Iterator[Any]:
    """Do what the façades' iterators do."""
    while True:
        while (step := consumer.core.user_poll()) is not None:
            consumer.core.group.step_done(step)
        yield from consumer.core.iterate(consumer.core.take(None, with_topic=True))


def test_what_an_iterator_has_not_handed_out_is_not_committed() -> None:
    """Commits and positions follow the records, while iterating and after a break."""
    cluster = _two()
    _write(cluster, T0, b"0", b"1", b"2")
    _write(cluster, T1, b"0", b"1", b"2")
    consumer = _reader(cluster, T0, T1)
    records = _iterate(consumer)
    for count in range(1, 6):
        record = next(records)
        consumed = consumer.core.consumed()
        assert sum(one.offset for one in consumed.values()) == count
        assert consumed[TopicPartition(record.topic, record.partition)].offset == record.offset + 1
        state = consumer.core.subscription.state(TopicPartition(record.topic, record.partition))
        assert consumer.core.position_of(state) == record.offset + 1


@pytest.mark.parametrize("taken", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("deserializer", [None, "integer"])
def test_after_a_break_the_rest_comes_again(taken: int, deserializer: str | None) -> None:
    """By another iterator or by `poll`; each record once, in order."""
    cluster = _two()
    for batch in ((1, 2), (3,)):
        for partition in (T0, T1):
            _write(cluster, partition, *[n.to_bytes(4, "big") for n in batch])
    consumer = _reader(cluster, T0, T1, value_deserializer=deserializer)
    records = _iterate(consumer)
    got = [next(records) for _ in range(taken)]
    while more := consumer.poll(2):
        got += more
    for number in (0, 1):
        values = [record.value for record in got if record.partition == number]
        numbers = [n if deserializer else int.from_bytes(n, "big") for n in values]
        assert numbers == [1, 2, 3]
    assert consumer.core.consumed() == dict.fromkeys((T0, T1), OffsetAndMetadata(3, "", 0))


def test_an_iterator_that_was_overtaken_hands_out_nothing_twice() -> None:
    """A poll in the loop returns the remaining records, a seek takes effect at once."""
    cluster = _two()
    _write(cluster, T0, b"0", b"1", b"2", b"3")
    consumer = _reader(cluster, T0)
    reading = consumer.core.iterate(consumer.core.take(None, with_topic=True))
    records = iter(reading)
    assert next(records).value == b"0"
    assert [record.value for record in consumer.poll(1)] == [b"1"]
    assert next(records, None) is None
    records = iter(consumer.core.iterate(consumer.core.take(None, with_topic=True)))
    assert next(records).value == b"2"
    consumer.core.seek(T0, 1)
    assert next(records, None) is None
    assert _position(consumer, T0) == 1
    consumer.sim.run_for(100)
    assert [record.value for record in consumer.poll()] == [b"1", b"2", b"3"]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Yield the address of a node with a topic of one partition and five records."""
    with Cluster() as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic("t", 1)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send_many("t", [b"%d" % n for n in range(5)])
        yield cluster.bootstrap


def _committed(bootstrap: str, group: str) -> int:
    with Admin(bootstrap_servers=bootstrap) as admin:
        committed = admin.list_group_offsets(group)[T0]
    assert committed is not None
    return committed.offset


def test_breaking_off_commits_what_was_handed_out(bootstrap: str) -> None:
    """The blocking façade: close after a break commits the one record; the next goes on there."""
    settings: ConsumerSettings = {
        "bootstrap_servers": bootstrap,
        "group_id": "g-break",
        "auto_offset_reset": "earliest",
    }
    with Consumer("t", **settings) as consumer:
        for record in consumer:
            assert record.value == b"0"
            break
    assert _committed(bootstrap, "g-break") == 1
    with Consumer("t", **settings) as consumer:
        records = iter(consumer)
        assert [next(records).value, next(records).value] == [b"1", b"2"]
        assert consumer.position(T0) == 3
        assert consumer.lag(T0) == 2
        consumer.commit()
        assert next(records).value == b"3"
        assert _committed(bootstrap, "g-break") == 3


def test_breaking_off_an_async_iterator(bootstrap: str) -> None:
    """As the blocking one."""

    async def run() -> None:
        settings: ConsumerSettings = {
            "bootstrap_servers": bootstrap,
            "group_id": "g-async",
            "auto_offset_reset": "earliest",
        }
        async with AsyncConsumer("t", **settings) as consumer:
            async for record in consumer:
                if record.value == b"1":
                    break
            assert [one.value for one in await consumer.poll(5, max_records=1)] == [b"2"]

    asyncio.run(run())
    assert _committed(bootstrap, "g-async") == 3


# ---------------------------------------------------------------- errors that wait


def _unauthorized(cluster: FakeCluster) -> Callable[[FetchRequest], FetchResponse]:
    def refuse(request: FetchRequest) -> FetchResponse:
        response = cluster.fetch(request)
        assert isinstance(response, FetchResponse)
        for topic in response.responses:
            for part in topic.partitions:
                part.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return response

    return refuse


def _refused(cluster: FakeCluster) -> Any:
    """Return a consumer whose fetches of two partitions were refused many times."""
    consumer = SimulatedConsumer(cluster)
    cluster.handlers[FetchRequest] = _unauthorized(cluster)
    consumer.core.assign([T0, T1])
    consumer.sim.run_for(5_000)
    assert len(cluster.requests(FetchRequest)) > 10
    cluster.handlers[FetchRequest] = cluster.fetch
    return consumer


def test_who_comes_late_hears_an_error_once_a_partition() -> None:
    """Not once for every try in the background."""
    cluster = _two()
    _write(cluster, T0, b"0")
    consumer = _refused(cluster)
    consumer.sim.run_for(500)
    messages = []
    for _ in range(5):
        try:
            consumer.poll()
        except KafkaError as error:
            messages.append(error.message)
    assert len(messages) == 2
    assert len(set(messages)) == 2


def test_a_seek_and_a_new_assignment_forget_a_partitions_errors() -> None:
    """They concern positions that are no longer requested."""
    cluster = _two()
    consumer = _refused(cluster)
    consumer.core.seek(T0, 0)
    consumer.core.assign([T0])
    assert consumer.core.fetcher.errors.pop() is None
    assert consumer.poll() == []


@pytest.mark.parametrize("group_id", ["g", ""])
def test_without_a_position_every_poll_says_so(group_id: str) -> None:
    """auto.offset.reset=none and nothing committed: until a seek, at the pace of the backoff."""
    cluster = _two()
    _write(cluster, T0, b"0")
    consumer = SimulatedConsumer(cluster, group_id=group_id or None, auto_offset_reset="none")
    consumer.core.assign([T0])
    for _ in range(3):
        consumer.sim.run_for(1_000)
        with pytest.raises(KafkaError, match="no offset for t-0"):
            consumer.poll()
    assert len(cluster.requests(OffsetFetchRequest)) <= 31
    consumer.core.seek(T0, 0)
    consumer.sim.run_for(1_000)
    assert [record.value for record in consumer.poll()] == [b"0"]


def test_waiting_for_the_coordinator_costs_nothing() -> None:
    """Committed offsets that cannot be asked for yet are no reason to poll at once again."""
    cluster = _two()
    cluster.handlers[FindCoordinatorRequest] = lambda request: FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=request.coordinator_keys[0],
                node_id=-1,
                host="",
                port=-1,
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                error_message=None,
            )
        ]
    )
    consumer = SimulatedConsumer(cluster)
    consumer.core.assign([T0])
    consumer.sim.run_for(1_000)
    consumer.core.client.poll(consumer.sim.now_ms)
    deadline_ms = consumer.core.positions.next_deadline_ms()
    assert deadline_ms is None or deadline_ms > consumer.sim.now_ms


def test_names_and_a_pattern_exclude_each_other_before_any_metadata() -> None:
    """The kind counts, not which topics were found."""
    subscription = Subscription(exclude_internal=True)
    subscription.subscribe_pattern("x.*", None)
    with pytest.raises(KafkaError, match="mutually exclusive"):
        subscription.subscribe(["a"], None)
    subscription.subscribe_pattern("y.*", None)
    subscription.unsubscribe()
    subscription.subscribe(["a"], None)
    with pytest.raises(KafkaError, match="mutually exclusive"):
        subscription.subscribe_pattern("x.*", None)
