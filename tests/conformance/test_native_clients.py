"""The native clients against real Kafka 4.3.0 and against Ottla: the same tests for both."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from ottla.clients.admin.configs import AlterOperation, ConfigChange, ConfigResource, ResourceType
from ottla.clients.blocking_runtime import BlockingRuntime
from ottla.clients.client import ANY_NODE
from ottla.clients.consumer.core import RebalanceListener
from ottla.clients.settings import COMMON, read_settings
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.metadata import MetadataRequest
from tests.conformance.clients.target import SELECTED, running_target
from tests.conformance.pair import wait_until_all_applied
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla import ConsumerSettings
    from ottla.clients.consumer.record_decoder import ConsumerRecord

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", params=[SELECTED] if SELECTED else ["kafka", "ottla"])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Give the address of a node of either kind."""
    if request.param == "kafka":
        yield f"127.0.0.1:{request.getfixturevalue('real_kafka').port}"
        return
    with running_target(tmp_path_factory.mktemp("ottla")) as target:
        yield target.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    """Give an admin client."""
    with Admin(
        bootstrap_servers=bootstrap, default_api_timeout_ms=60_000, request_timeout_ms=60_000
    ) as client:
        yield client


@pytest.fixture
def topic(bootstrap: str, admin: Admin) -> str:
    """Give a fresh topic of three partitions that the broker leads."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    admin.create_topic(name, 3)
    wait_until_all_applied(bootstrap)
    return name


def _read(consumer: Consumer, count: int, seconds: float = WAIT_S) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.poll(0.5)
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(bootstrap: str, topic: str, codec: Any) -> None:
    """Keys, values, nulls, headers and timestamps through every codec."""
    base_ms = int(time.time() * 1000) - 1000  # old records would be deleted during the test
    with Producer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20) as producer:
        sent = [
            producer.send(
                topic,
                None if n % 7 == 0 else f"value {n}" * 10,
                f"key {n % 5}",
                timestamp_ms=base_ms + n,
                headers={"n": str(n), "empty": None},
            )
            for n in range(200)
        ]
        places = [delivery.result(WAIT_S) for delivery in sent]
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(3)])
        consumer.seek_to_beginning()
        found = {(r.partition, r.offset): r for r in _read(consumer, 200)}
    assert len(found) == 200
    for n, place in enumerate(places):
        record = found[place.partition, place.offset]
        assert record.key == f"key {n % 5}".encode()
        assert record.value == (None if n % 7 == 0 else f"value {n}".encode() * 10)
        assert record.timestamp == base_ms + n
        assert record.headers == (("n", str(n).encode()), ("empty", None))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_setting_delivers(bootstrap: str, topic: str, acks: Any) -> None:
    """Deliveries have offsets if the broker returns them."""
    with Producer(bootstrap_servers=bootstrap, acks=acks) as producer:
        places = [producer.send_and_wait(topic, b"v", partition=0) for _ in range(5)]
    expected = [-1] * 5 if acks == "0" else list(range(5))
    assert [place.offset for place in places] == expected
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        assert len(_read(consumer, 5)) == 5


def test_two_members_share_a_topic_and_go_on_after_each_other(bootstrap: str, topic: str) -> None:
    """Join, rebalance, commit, leave; nothing is read twice after a clean close."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    reported: list[tuple[str, int]] = []

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
            reported.append(("assigned", len(partitions)))

        def on_partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
            reported.append(("revoked", len(partitions)))

    settings: ConsumerSettings = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
    }
    with Producer(bootstrap_servers=bootstrap) as producer:
        for n in range(300):
            producer.send(topic, str(n), key=str(n))
    with Consumer(**settings) as first:
        first.subscribe([topic], listener=Listener())
        values = [record.value for record in _read(first, 300)]
        assert len(values) == 300
        with Consumer(topic, **settings) as second:
            deadline = time.monotonic() + WAIT_S
            shares = [0, 0]
            while sorted(shares) != [1, 2] and time.monotonic() < deadline:
                values += [record.value for record in first.poll(0.1)]
                values += [record.value for record in second.poll(0.1)]
                shares = [len(first.assignment), len(second.assignment)]
            assert sorted(shares) == [1, 2]
    assert reported[0] == ("assigned", 3)
    assert ("revoked", 3) in reported
    assert reported[-1][0] == "revoked"  # by the close of the first
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"last")
    with Consumer(topic, **settings) as third:
        assert [record.value for record in _read(third, 1)] == [b"last"]
        third.commit()
        ends = third.end_offsets([TopicPartition(topic, n) for n in range(3)])
        committed = third.committed(ends)
        assert {p: c.offset for p, c in committed.items() if c} == ends
    assert sorted(values, key=lambda value: int(value or 0)) == [b"%d" % n for n in range(300)]


def test_cooperative_members_keep_reading(bootstrap: str, topic: str) -> None:
    """A second cooperative member takes over without the first giving everything up."""
    settings: ConsumerSettings = {
        "bootstrap_servers": bootstrap,
        "group_id": f"g-{uuid.uuid4().hex[:8]}",
        "partition_assignment_strategy": "cooperative-sticky",
        "heartbeat_interval_ms": 200,
    }
    least = 3
    with Consumer(topic, **settings) as first:
        deadline = time.monotonic() + WAIT_S
        while len(first.assignment) != 3 and time.monotonic() < deadline:
            first.poll(0.1)
        with Consumer(topic, **settings) as second:
            while not second.assignment and time.monotonic() < deadline:
                first.poll(0.05)
                second.poll(0.05)
                least = min(least, len(first.assignment))
            assert len(second.assignment) == 1
            assert least == 2


def test_patterns_find_topics_that_are_made_later(bootstrap: str, admin: Admin) -> None:
    """subscribe(pattern=...) sees a new topic at the next metadata refresh."""
    prefix = f"p{uuid.uuid4().hex[:8]}"
    admin.create_topic(f"{prefix}-a", 1)
    with Consumer(
        bootstrap_servers=bootstrap,
        group_id=prefix,
        metadata_max_age_ms=500,
        heartbeat_interval_ms=200,
    ) as consumer:
        consumer.subscribe(pattern=f"{prefix}-.*")
        deadline = time.monotonic() + WAIT_S
        while len(consumer.assignment) < 1 and time.monotonic() < deadline:
            consumer.poll(0.1)
        admin.create_topic(f"{prefix}-b", 1)
        while len(consumer.assignment) < 2 and time.monotonic() < deadline:
            consumer.poll(0.1)
        assert {partition.topic for partition in consumer.assignment} == {
            f"{prefix}-a",
            f"{prefix}-b",
        }


def test_offsets_by_time_and_deleted_records(bootstrap: str, admin: Admin, topic: str) -> None:
    """offsets_for_times, list_offsets with special timestamps, delete_records."""
    zero = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=bootstrap) as producer:
        base_ms = int(time.time() * 1000) - 100_000
        for n in range(10):
            producer.send(topic, b"v", partition=0, timestamp_ms=base_ms + n * 1000)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        found = consumer.offsets_for_times({zero: base_ms + 3500, TopicPartition(topic, 1): 0})
        at_time = found[zero]
        assert at_time is not None
        assert at_time.offset == 4
        assert found[TopicPartition(topic, 1)] is None
        assert consumer.beginning_offsets([zero]) == {zero: 0}
        assert consumer.end_offsets([zero]) == {zero: 10}
        largest = admin.list_offsets({zero: -3})[zero]
        assert not isinstance(largest, KafkaError)
        assert (largest.offset, largest.timestamp) == (9, base_ms + 9000)
        assert admin.delete_records({zero: 6}) == {zero: 6}
        assert consumer.beginning_offsets([zero]) == {zero: 6}
        consumer.assign([zero])
        consumer.seek(zero, 2)
        with pytest.raises(KafkaError):
            consumer.position(TopicPartition(topic, 2))
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([zero])
        consumer.seek(zero, 2)
        assert [record.offset for record in _read(consumer, 4)] == [6, 7, 8, 9]


def test_topics_and_configs_are_managed(admin: Admin, topic: str) -> None:
    """Create, describe, grow, configure, delete; errors by thing."""
    again = admin.create_topics([topic])[topic]
    assert isinstance(again, KafkaError)
    assert again.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert admin.create_partitions({topic: 5}) == {topic: None}

    def partitions() -> int:
        description = admin.describe_topics([topic])[topic]
        assert not isinstance(description, KafkaError)
        return len(description.partitions)

    wait_for(lambda: partitions() == 5)
    missing = admin.describe_topics(["no-such-topic"])["no-such-topic"]
    assert isinstance(missing, KafkaError)
    assert missing.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert admin.alter_configs({resource: {"retention.ms": 60_000}}) == {resource: None}

    def retention() -> tuple[str | None, bool]:
        entries = admin.describe_configs([resource])[resource]
        assert not isinstance(entries, KafkaError)
        entry = entries["retention.ms"]
        return entry.value, entry.is_default

    wait_for(lambda: retention() == ("60000", False))
    change = ConfigChange("retention.ms", operation=AlterOperation.DELETE)
    assert admin.alter_configs({resource: [change]}) == {resource: None}
    wait_for(lambda: retention() == ("604800000", True))
    assert topic in {listed.name for listed in admin.list_topics()}
    admin.delete_topic(topic)
    wait_for(lambda: topic not in {listed.name for listed in admin.list_topics()})


def test_groups_are_managed(bootstrap: str, admin: Admin, topic: str) -> None:
    """List, describe, alter and delete offsets, delete."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    zero = TopicPartition(topic, 0)
    with Consumer(topic, bootstrap_servers=bootstrap, group_id=group, client_id="me") as consumer:
        deadline = time.monotonic() + WAIT_S
        while not consumer.assignment and time.monotonic() < deadline:
            consumer.poll(0.1)
        consumer.commit({zero: 0})
        described = admin.describe_groups([group])[group]
        assert not isinstance(described, KafkaError)
        assert described.state == "Stable"
        assert [member.client_id for member in described.members] == ["me"]
        assert len(described.members[0].assignment) == 3
        busy = admin.delete_groups([group])[group]
        assert busy is not None
        assert busy.code == ErrorCode.NON_EMPTY_GROUP
    assert group in {listed.group_id for listed in admin.list_groups()}
    assert admin.alter_group_offsets(group, {zero: 7}) == {zero: None}
    committed = admin.list_group_offsets(group)[zero]
    assert committed is not None
    assert committed.offset == 7
    assert admin.delete_group_offsets(group, [zero]) == {zero: None}
    assert zero not in admin.list_group_offsets(group)
    assert admin.delete_groups([group]) == {group: None}


def test_the_cluster_is_described(admin: Admin) -> None:
    """Brokers, features, versions."""
    cluster = admin.describe_cluster()
    assert cluster.brokers
    assert admin.describe_features().finalized["metadata.version"].highest >= 30
    assert admin.api_versions()[3][1] == 13


def test_log_directories_are_described(admin: Admin) -> None:
    """Every broker's directories, without errors."""
    directories = admin.describe_log_dirs()
    assert all(one.error is None for dirs in directories.values() for one in dirs)


def test_asyncio_clients_do_the_same(bootstrap: str, topic: str) -> None:
    """AsyncProducer and AsyncConsumer in one loop."""

    async def run() -> list[bytes]:
        async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
            deliveries = [await producer.send(topic, str(n)) for n in range(50)]
            places = [await delivery for delivery in deliveries]
            assert all(place.offset >= 0 for place in places)
        async with AsyncConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            found: list[bytes] = []
            async for record in consumer:
                found.append(record.value)
                if len(found) == 50:
                    break
            await consumer.commit()
            return found

    assert sorted(asyncio.run(run()), key=int) == [b"%d" % n for n in range(50)]


def test_threads_may_share_a_producer(bootstrap: str, topic: str) -> None:
    """Four threads, one producer: every record arrives once, in each thread's order."""
    with Producer(bootstrap_servers=bootstrap) as producer:

        def work(name: int) -> None:
            for n in range(500):
                producer.send(topic, f"{n}", str(name), partition=0)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found = _read(consumer, 2000)
    for name in range(4):
        own = [int(r.value) for r in found if r.key == str(name).encode()]
        assert own == list(range(500))


def test_a_client_runs_without_an_event_loop(bootstrap: str, topic: str) -> None:
    """BlockingRuntime: typed requests from the calling thread."""
    settings = read_settings(COMMON, {"bootstrap.servers": bootstrap}, {})
    with BlockingRuntime(settings) as runtime:
        requested = MetadataRequest.MetadataRequestTopic(name=topic)
        request = MetadataRequest(topics=[requested])
        answer = runtime.wait_for(runtime.client.send(ANY_NODE, request))
    assert [len(one.partitions) for one in answer.topics] == [3]


def test_a_topic_that_does_not_exist_is_told(bootstrap: str) -> None:
    """Where auto-creation is refused by the name, the error names the topic."""
    with (
        Producer(bootstrap_servers=bootstrap) as producer,
        pytest.raises(KafkaError, match="bad topic!"),
    ):
        producer.send("bad topic!", b"v")


def test_a_broker_that_dies_and_returns_costs_no_record_and_no_order() -> None:
    """Two crashes of an Ottla node under load: every record once, in order, in each partition."""
    from ottla.testing.cluster import Cluster

    found: list[ConsumerRecord] = []
    values = [b"%d" % n for n in range(1200)]
    with Cluster() as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic("t", 2)

        def read() -> None:
            with Consumer(
                "t",
                bootstrap_servers=cluster.bootstrap,
                group_id="g",
                auto_offset_reset="earliest",
                heartbeat_interval_ms=300,
            ) as consumer:
                deadline = time.monotonic() + 2 * WAIT_S
                while len(found) < len(values) and time.monotonic() < deadline:
                    found.extend(consumer.poll(0.2))

        reader = threading.Thread(target=read)
        reader.start()
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for n, value in enumerate(values):
                producer.send("t", value, partition=n % 2)
                if n in (400, 800):
                    time.sleep(0.05)
                    cluster.kill()
                    cluster.restart()
            producer.flush(WAIT_S)
        reader.join(3 * WAIT_S)
    for partition in (0, 1):
        own = [record.value for record in found if record.partition == partition]
        assert own == values[partition::2]
