"""Clients of a node read records that are in the tier alone."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Consumer, TopicPartition
from ottla.errors import ErrorCode
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.purgatory.loop import Loop
from ottla.records.batches import iterate_batches
from ottla.server.remote.reader import RemoteReader
from ottla.storage.remote.partition_segments import PartitionSegments
from ottla.testing.cluster import Cluster
from tests.server.remote.test_reader import Segments
from tests.server.requests.test_fetch_waits import codes, create, records, request
from tests.server.requests.untrusted_clients import Peer, produce
from tests.storage.remote.tiers import MemoryTier
from tests.waits import WAIT_S, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.server.node.node import Node
    from ottla.storage.remote.segment import RemoteSegment
    from ottla.types import Uuid


Requested = ListOffsetsRequest.ListOffsetsTopic


class AnyPartition(Segments):
    """A tier of one partition, whatever its topic's id."""

    def segment_at(self, _partition: tuple[Any, int], epoch: int, offset: int) -> Any:
        return self.table.segment_at(epoch, offset)

    def forget(self) -> int:
        """Lose all metadata."""
        self.table = PartitionSegments()
        return 0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture
def topic_id(cluster: Cluster) -> Uuid:
    """Return a topic with segments of ten records, the first five of which are in the tier."""
    topic_id = create(cluster, "t")
    peer = Peer(cluster.bootstrap)
    for number in range(60):
        assert produce(peer, "t", records(100 + number)) == 0
        if number % 10 == 9:
            cluster.run(lambda node: log_of(node).roll(node.clock.now_ms()) and 0)
    peer.close()
    return topic_id


@pytest.fixture
def tier(cluster: Cluster, topic_id: Uuid) -> MemoryTier:
    tier = MemoryTier()
    assert topic_id

    def set_up(node: Node) -> int:
        log = log_of(node)
        segments = AnyPartition(tier)
        segments.add(tier.take_over(log, 5))
        broker, resources = node.broker, node._resources
        loop = Loop(broker.clock, broker.timer, broker.worker)
        pool = resources.environment.start_workers(resources.loop, 3)
        broker.remote_reader = RemoteReader(segments, node.config, loop, pool.run)
        return int(log.log_start_offset)

    assert cluster.run(set_up) == 0
    return tier


def search(
    peer: Peer, *timestamps: int, version: int = 11, timeout_ms: int = 0
) -> list[tuple[int, int]]:
    """Return error and offset for each timestamp, asked one by one."""
    found = []
    for timestamp in timestamps:
        partition = Requested.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topics = [Requested(name="t", partitions=[partition])]
        asked = ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=timeout_ms)
        answer = peer.ask(asked, version).topics[0].partitions[0]
        found.append((answer.error_code, answer.offset))
    return found


def make_tiered(node: Node) -> int:
    """Let the log know what is copied, as the log manager does."""
    log = log_of(node)
    log.config = replace(log.config, remote_storage_enable=True)
    log.copied_to_tier(log.local_log_start_offset - 1)
    return int(log.local_log_start_offset)


def first_offset(data: bytes) -> int:
    return next(iterate_batches(memoryview(data))).base_offset


def without_reader(node: Node) -> int:
    node.broker.remote_reader = None
    return 0


def log_of(node: Node) -> Any:
    return node.broker.replicas.get("t", 0).log


def test_a_consumer_reads_everything_in_order(cluster: Cluster, tier: MemoryTier) -> None:
    """With sessions, from the tier and then from the local log."""
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        found = read_records(consumer, 60)
    assert [record.offset for record in found] == list(range(60))
    assert [len(record.value or b"") for record in found] == list(range(100, 160))
    assert 5 <= tier.read_count < 20


def test_one_answer_has_one_segment(cluster: Cluster, topic_id: Uuid, tier: MemoryTier) -> None:
    """As Kafka's, whatever min_bytes is: it does not wait for more."""
    peer = Peer(cluster.bootstrap)
    answer = peer.ask(request((topic_id, 0, 12), min_bytes=1 << 20), 13)
    partition = answer.responses[0].partitions[0]
    assert (partition.error_code, partition.high_watermark, partition.log_start_offset) == (
        0,
        60,
        0,
    )
    second = tier.logs[sorted(tier.logs)[1]]
    assert second.endswith(partition.records)
    assert first_offset(partition.records) == 12
    peer.close()


def test_a_slow_tier_delays_no_one_else(cluster: Cluster, topic_id: Uuid, tier: MemoryTier) -> None:
    """The fetch comes back empty after remote.fetch.max.wait.ms; others do not wait for it."""
    released = threading.Event()

    def hang(_segment: RemoteSegment) -> None:
        released.wait(2 * WAIT_S)

    tier.before_read = hang
    slow, quick = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
    begin_s = time.monotonic()
    answer = slow.ask(request((topic_id, 0, 0)), 13)
    assert 0.4 < time.monotonic() - begin_s < WAIT_S
    assert codes(answer) == [0]
    assert not answer.responses[0].partitions[0].records
    assert quick.ask(request((topic_id, 0, 55)), 13).responses[0].partitions[0].records
    released.set()
    answer = slow.ask(request((topic_id, 0, 0)), 13)
    assert answer.responses[0].partitions[0].records
    slow.close()
    quick.close()


def test_what_the_tier_lacks_is_out_of_range(
    cluster: Cluster, topic_id: Uuid, tier: MemoryTier
) -> None:
    """Also without a tier at all; the error is the partition's, and ends no connection."""
    peer = Peer(cluster.bootstrap)
    cluster.run(lambda node: node.broker.remote_reader._segments.forget())  # type: ignore[union-attr]
    assert codes(peer.ask(request((topic_id, 0, 0)), 13)) == [ErrorCode.OFFSET_OUT_OF_RANGE]
    cluster.run(without_reader)
    assert codes(peer.ask(request((topic_id, 0, 0)), 13)) == [ErrorCode.OFFSET_OUT_OF_RANGE]
    assert tier.read_count == 0
    peer.close()


def test_offsets_by_time_come_from_the_tier_first(cluster: Cluster, tier: MemoryTier) -> None:
    """As if all were local; the special timestamps tell the tier and the disk apart."""
    peer = Peer(cluster.bootstrap)
    times = sorted({batch.max_timestamp for data in tier.logs.values() for batch in whole(data)})
    local_start = cluster.run(make_tiered)
    assert local_start == 50
    assert search(peer, 0, times[0], times[-1] + 1_000_000) == [(0, 0), (0, 0), (0, -1)]
    first_of: dict[int, int] = {}
    for data in tier.logs.values():
        for batch in whole(data):
            first_of.setdefault(batch.max_timestamp, batch.base_offset)
    assert search(peer, *times) == [(0, first_of[time]) for time in times]
    assert search(peer, -1, -2, -4, -5, -6) == [(0, 60), (0, 0), (0, 50), (0, 49), (0, 50)]
    unsupported = ErrorCode.UNSUPPORTED_VERSION, -1
    assert search(peer, -5, -6, version=8) == [unsupported, unsupported]
    assert search(peer, -6, version=10) == [unsupported]
    peer.close()


def test_a_search_of_a_tier_that_hangs_times_out(cluster: Cluster, tier: MemoryTier) -> None:
    """After the client's limit; a failed search is an error of its partition."""
    cluster.run(make_tiered)
    released = threading.Event()

    def hang(_segment: RemoteSegment) -> None:
        released.wait(2 * WAIT_S)

    tier.before_read = hang
    peer = Peer(cluster.bootstrap)
    assert search(peer, 0, timeout_ms=100) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]

    def hurry(node: Node) -> int:
        assert node.broker.remote_reader is not None
        node.broker.remote_reader.search_timeout_ms = 100
        return node.broker.remote_reader.searches.delayed_count

    assert cluster.run(hurry) == 0
    assert search(peer, 0, version=9) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
    released.set()
    tier.logs.clear()
    assert search(peer, 0) == [(ErrorCode.UNKNOWN_SERVER_ERROR, -1)]
    peer.close()


def whole(data: bytes) -> Any:
    return list(iterate_batches(memoryview(data)))
