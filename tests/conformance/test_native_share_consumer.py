"""The native share consumer on Kafka 4.3.0, and its share coordinator's log in both directions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla import (
    AcknowledgeType,
    Admin,
    NewTopic,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from ottla.coordinator.runtime import ShardEnvironment, ShardTimers
from ottla.coordinator.runtime.loader import Loader
from ottla.coordinator.share.shard import ShareCoordinatorConfig, ShareShard, StateChange
from ottla.coordinator.share.state import ShareKey, StateBatch
from ottla.protocol.apis.read_share_group_state import ReadShareGroupStateRequest
from ottla.purgatory.pending import Pending
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.purgatory.work import finish
from ottla.records.batches import iterate_batches
from ottla.records.builder import encode_batch
from ottla.timeline import SnapshotRegistry
from tests.conformance.kafka import kafka_or_skip, running_kafka
from tests.conformance.share_groups import begin_at_the_start
from tests.coordinator.harness import MemoryLog, VirtualClock, loop_of

if TYPE_CHECKING:
    from pathlib import Path

    from ottla import ShareRecord
    from ottla.types import Uuid

    State = tuple[int, list[tuple[int, ...]]]

pytestmark = pytest.mark.conformance
PROPERTIES = {
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "60000",
}
TOPIC, GROUP = "shared", "natives"
COUNT = 6
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def poll(consumer: ShareConsumer) -> list[ShareRecord]:
    """Poll until records come."""
    end = time.monotonic() + 60
    while not (found := consumer.poll(0.2)):
        assert time.monotonic() < end, "no records come"
    return found


def consume(bootstrap: str) -> None:
    """Accept, release, reject and renew records; commit thrice, so that updates follow."""
    settings: Any = {"bootstrap_servers": bootstrap, "group_id": GROUP}
    partition = TopicPartition(TOPIC, 0)
    with ShareConsumer(TOPIC, share_acknowledgement_mode="explicit", **settings) as consumer:
        first = poll(consumer)
        assert [one.offset for one in first] == list(range(COUNT))
        kinds = (RELEASE, ACCEPT, REJECT, RELEASE, AcknowledgeType.RENEW, ACCEPT)
        for record, kind in zip(first, kinds, strict=True):
            consumer.acknowledge(record, kind)
        assert consumer.commit() == {partition: None}
        (renewed,) = poll(consumer)
        assert (renewed.offset, renewed.delivery_count) == (4, 1)
        consumer.acknowledge(renewed, RELEASE)
        assert consumer.commit() == {partition: None}
        again = poll(consumer)
        assert [(one.offset, one.delivery_count) for one in again] == [(0, 2), (3, 2), (4, 2)]
        for record in again:
            consumer.acknowledge(record, RELEASE if record.offset == 0 else ACCEPT)
        assert consumer.commit() == {partition: None}
    with ShareConsumer(TOPIC, **settings) as consumer:
        assert [(one.offset, one.delivery_count) for one in poll(consumer)] == [(0, 3)]


def state_of_kafka(bootstrap: str, topic_id: Uuid) -> State:
    """Return the start offset and the batches that Kafka's share coordinator has."""
    topic = ReadShareGroupStateRequest.ReadStateData
    part = topic.PartitionData(partition=0, leader_epoch=0)
    request = ReadShareGroupStateRequest(
        group_id=GROUP, topics=[topic(topic_id=topic_id, partitions=[part])]
    )
    end = time.monotonic() + 60
    with Admin(bootstrap_servers=bootstrap) as admin:
        while True:
            found = admin.request(request, 1).results[0].partitions[0]
            if not found.error_code:
                break
            assert time.monotonic() < end, found.error_message
            time.sleep(0.1)
    batches: list[tuple[int, ...]] = [
        (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in found.state_batches
    ]
    return found.start_offset, batches


def shard() -> ShareShard:
    """Return a share coordinator's shard of our own."""
    clock = VirtualClock()
    timer = TimingWheel(0)
    timers = ShardTimers(
        loop_of(timer, clock), lambda _operation, _retry: None, lambda _slices: Pending()
    )
    environment = ShardEnvironment(0, SnapshotRegistry(), timers, clock)
    return ShareShard(environment, ShareCoordinatorConfig(), lambda _id, _partition: True)


def state_of_ours(data: bytes, key: ShareKey) -> State:
    """Return the same of our shard, after it has loaded a log."""
    log = MemoryLog()
    log.batches[0] = [bytes(one.buffer) for one in iterate_batches(memoryview(data))]
    log.high_watermarks[0] = log.end_offset(0)
    made = shard()
    loader = Loader(log, 0, made)
    finish(loader.run())
    state = made.states[key]
    return state.start_offset, [tuple(one) for one in state.batches]


def written_by_us(key: ShareKey) -> bytes:
    """Return a log of our shard: a snapshot and two updates."""
    made, batches = shard(), b""
    begin = made.initialize(key, 0, 0)
    changes = (
        StateChange(0, 0, 0, 2, (StateBatch(0, 1, 2, 1), StateBatch(2, 5, 0, 1))),
        StateChange(0, 0, -1, 3, (StateBatch(3, 3, 4, 2),)),
    )
    for offset in range(1 + len(changes)):
        result = begin if not offset else made.write(key, changes[offset - 1])
        (record,) = result.records
        made.replay(offset, -1, record)
        fields = (1_700_000_000_000, *made.encode(record), ())
        batches += bytes(encode_batch([fields], base_offset=offset, leader_epoch=0))
    return batches


@pytest.mark.timeout(600)
def test_natives_on_kafka_and_the_log_of_its_share_coordinator(tmp_path: Path) -> None:
    """Each coordinator reads what the other one has written."""
    with running_kafka(kafka_or_skip(), tmp_path, PROPERTIES) as node:
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
            begin_at_the_start(admin, GROUP)
            topic_id = admin.describe_topics([TOPIC])[TOPIC].topic_id  # type: ignore[union-attr] # it exists
        with Producer(bootstrap_servers=node.bootstrap) as producer:
            producer.send_many(TOPIC, [b"%d" % number for number in range(COUNT)])
        consume(node.bootstrap)
        key = ShareKey(GROUP, topic_id, 0)
        stored = state_of_kafka(node.bootstrap, topic_id)
        node.stop()

        directory = node.log_dir / "__share_group_state-0"
        (segment,) = directory.glob("*.log")
        assert state_of_ours(segment.read_bytes(), key) == stored

        for path in directory.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        ours = written_by_us(key)
        (directory / "00000000000000000000.log").write_bytes(ours)
        node.start()
        assert state_of_kafka(node.bootstrap, topic_id) == state_of_ours(ours, key)
