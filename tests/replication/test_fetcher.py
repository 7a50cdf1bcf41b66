"""A follower's side of replication, one request at a time."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.sampled_stat import SampleWindow
from ottla.protocol.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.fetch_values import FetchAnswer, FetchedPartition, FetchValues
from ottla.quota.replication import ReplicationQuota
from ottla.records.builder import encode_batch
from ottla.replication.fetcher import NAMED_AT_ONCE, FetcherSettings, ReplicaFetcher
from ottla.replication.log_copy import Cut
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicationTraffic
from ottla.storage.log.config import LogConfig
from ottla.storage.log.leader_epochs import EpochEntry
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.truncation import RemoteState
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition, Uuid
from tests.storage.logs import flush

NOW_MS = 1_000_000
EPOCH = 3
BACKOFF_MS = 100
SETTINGS = FetcherSettings(backoff_ms=BACKOFF_MS)
TOPIC_ID = Uuid(b"0123456789abcdef")
_Offsets = ListOffsetsResponse.ListOffsetsTopicResponse


def batch(offset: int, count: int = 1, epoch: int = EPOCH) -> bytes:
    """Return a batch as the leader stores it."""
    records = [(NOW_MS, None, b"v", ()) for _ in range(count)]
    return bytes(encode_batch(records, base_offset=offset, leader_epoch=epoch))


def fetched(
    index: int = 0,
    records: bytes = b"",
    *,
    error_code: int = 0,
    high_watermark: int = 0,
    log_start_offset: int = 0,
    diverging: tuple[int, int] | None = None,
) -> FetchedPartition:
    """Return what a leader answers for one partition."""
    key, size = ("", TOPIC_ID, index), len(records)
    stable = high_watermark
    return FetchedPartition(
        key, error_code, high_watermark, stable, log_start_offset,
        None, memoryview(records), size, diverging,
    )  # fmt: skip


class World:
    """One broker that replicates partitions of one topic."""

    def __init__(self, partitions: int = 1, settings: FetcherSettings = SETTINGS) -> None:
        self.moved: list[int] = []
        self.traffic = ReplicationTraffic()
        self.limit = ReplicationQuota(SampleWindow(11, 1000))
        self.failed: list[tuple[int, ErrorCode]] = []
        self.fetcher = ReplicaFetcher(
            2,
            1,
            settings,
            broker_epoch=lambda: 12,
            on_fetched=lambda one: self.moved.append(one.topic_partition.partition),
            limit=self.limit,
            traffic=self.traffic,
            on_failed=lambda one, error: self.failed.append(
                (one.topic_partition.partition, error.code)
            ),
        )
        self.partitions: list[Partition] = []
        for index in range(partitions):
            log = PartitionLog.open(
                SimulatedDisk(), f"t-{index}", config=LogConfig(), now_ms=NOW_MS
            )
            self.partitions.append(Partition(TopicPartition("t", index), TOPIC_ID, log))
            self.fetcher.add(self.partitions[-1], EPOCH)

    @property
    def log(self) -> PartitionLog:
        """Return the first partition's log."""
        return self.partitions[0].log

    def fetch(self, now_ms: int = NOW_MS) -> FetchValues:
        """Return the next request, which is a Fetch."""
        request = self.fetcher.poll(now_ms)
        assert isinstance(request, FetchValues), request
        return request

    def answer(
        self, *partitions: FetchedPartition, session_id: int = 7, error_code: int = 0
    ) -> None:
        """Answer the fetch in flight."""
        self.receive(FetchAnswer(error_code, session_id, partitions))

    def receive(self, response: FetchAnswer | ListOffsetsResponse) -> None:
        """Take a response, and truncate what has to be truncated after it."""
        self.fetcher.received(response, NOW_MS, NOW_MS)
        self.fetcher.take_cuts()
        self.fetcher.truncate(len(self.partitions), NOW_MS, NOW_MS, lambda _log: False)

    def flush(self) -> None:
        """Make truncations durable."""
        for log, flushed in self.fetcher.take_unflushed():
            flush(log)
            flushed()


def named(request: FetchValues) -> list[tuple[int, int]]:
    """Return the partitions of a request with their offsets."""
    return [(index, asked[1]) for (_, _, index), asked in request.partitions.items()]


def test_only_partitions_that_moved_are_named_again() -> None:
    """A session makes idle partitions free (KIP-227)."""
    world = World(3)
    first = world.fetch()
    assert named(first) == [(0, 0), (1, 0), (2, 0)]
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert first.replica_epoch == 12
    assert world.fetcher.poll(NOW_MS) is None, "one request is in flight"
    world.answer(fetched(1, batch(0, 2), high_watermark=1))
    second = world.fetch()
    assert named(second) == [(1, 2)]
    assert (second.session_id, second.session_epoch) == (7, 1)
    world.answer()
    assert named(world.fetch()) == []
    assert world.moved == [1]
    assert world.partitions[1].log.high_watermark == 1
    assert max(world.fetcher.lags.values()) == 0


def test_a_lost_session_begins_again_with_all_partitions() -> None:
    """The leader restarted, or has evicted the session."""
    world = World(2)
    world.fetch()
    world.answer()
    world.fetch()
    world.answer(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), session_id=0)
    again = world.fetch()
    assert named(again) == [(0, 0), (1, 0)]
    assert (again.session_id, again.session_epoch) == (0, 0)


def test_a_request_without_response_pauses_and_begins_a_new_session() -> None:
    """The old session is closed by the request that begins the new one."""
    world = World()
    world.fetch()
    world.answer()
    world.fetch()
    world.fetcher.failed(NOW_MS)
    assert world.fetcher.poll(NOW_MS) is None
    assert world.fetcher.due_ms == NOW_MS + BACKOFF_MS
    again = world.fetch(NOW_MS + BACKOFF_MS)
    assert (named(again), again.session_id, again.session_epoch) == ([(0, 0)], 7, 0)


def test_a_partition_in_error_waits_alone() -> None:
    """It leaves the session, and comes back after replica.fetch.backoff.ms."""
    world = World(2)
    world.fetch()
    world.answer(fetched(0, error_code=int(ErrorCode.UNKNOWN_TOPIC_ID)))
    request = world.fetch()
    assert request.forgotten == [("", TOPIC_ID, 0)]
    world.answer()
    assert named(world.fetch(NOW_MS + BACKOFF_MS)) == [(0, 0)]


def test_damaged_batches_and_those_of_an_older_epoch_are_fetched_again() -> None:
    """Nothing of them is appended."""
    world = World()
    world.fetch()
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    world.answer(fetched(0, bytes(damaged)))
    assert world.log.log_end_offset == 0
    world.fetch(NOW_MS + BACKOFF_MS)
    world.answer(fetched(0, batch(0)))
    world.fetch(NOW_MS + BACKOFF_MS)
    world.answer(fetched(0, batch(1, epoch=EPOCH - 1)))
    assert world.log.log_end_offset == 1
    assert named(world.fetch(NOW_MS + 2 * BACKOFF_MS)) == [(0, 1)]


def test_a_batch_that_is_cut_short_is_left_for_the_next_fetch() -> None:
    """A leader's response ends anywhere."""
    world = World()
    world.fetch()
    world.answer(fetched(0, batch(0) + batch(1)[:-3]))
    assert named(world.fetch()) == [(0, 1)]


def test_a_log_that_diverges_is_truncated_to_where_both_agree() -> None:
    """As far as the largest epoch that both have (KIP-595)."""
    world = World()
    world.fetch()
    world.answer(fetched(0, batch(0, 3, epoch=1) + batch(3, 3, epoch=2)))
    world.fetch()
    world.answer(fetched(0, diverging=(1, 2)))
    world.flush()
    (asked,) = world.fetch().partitions.values()
    assert asked[1:3] == (0, -1), "the batch is cut as a whole"


def test_a_log_below_the_leaders_start_begins_again_there() -> None:
    """The leader has deleted what the follower would need."""
    world = World()
    world.fetch()
    world.answer(fetched(0, error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE)))
    for offset in (50, 40):  # the leader's end, then its start
        request = world.fetcher.poll(NOW_MS)
        assert isinstance(request, ListOffsetsRequest)
        assert request.replica_id == 2
        found = _Offsets.ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        response = ListOffsetsResponse(topics=[_Offsets(name="t", partitions=[found])])
        world.receive(response)
    assert named(world.fetch()) == [(0, 40)]
    assert (world.log.log_start_offset, world.log.high_watermark) == (40, 40)


def test_a_log_that_begins_again_stays_in_the_session() -> None:
    """It left the session for the lookup: the request that names it again does not forget it."""
    world = World(2)
    world.fetch()
    world.answer(fetched(0, error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE)))
    for offset in (50, 40):
        world.fetcher.poll(NOW_MS)
        found = _Offsets.ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        response = ListOffsetsResponse(topics=[_Offsets(name="t", partitions=[found])])
        world.receive(response)
    request = world.fetch()
    assert named(request) == [(0, 40)]
    assert request.forgotten == []


def test_a_log_beyond_the_leaders_end_is_truncated() -> None:
    """After an unclean election."""
    world = World()
    world.fetch()
    world.answer(fetched(0, batch(0) + batch(1) + batch(2)))
    world.fetch()
    world.answer(fetched(0, error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE)))
    assert isinstance(world.fetcher.poll(NOW_MS), ListOffsetsRequest)
    found = _Offsets.ListOffsetsPartitionResponse(partition_index=0, offset=2)
    response = ListOffsetsResponse(topics=[_Offsets(name="t", partitions=[found])])
    world.receive(response)
    world.flush()
    assert named(world.fetch()) == [(0, 2)]


def test_the_log_start_follows_the_leaders() -> None:
    """Records that are deleted there are deleted here."""
    world = World()
    world.fetch()
    world.answer(fetched(0, batch(0) + batch(1), high_watermark=2))
    world.fetch()
    world.answer(fetched(0, high_watermark=2, log_start_offset=1))
    assert world.log.log_start_offset == 1
    (asked,) = world.fetch().partitions.values()
    assert (asked[1], asked[3]) == (2, 1)


def test_a_leaders_log_may_begin_within_a_batch() -> None:
    """Records were deleted up to there; the batch comes whole, and its rest is what is served."""
    world = World()
    world.log.truncation.truncate_fully_and_start_at(5, now_ms=NOW_MS)
    world.fetcher.add(world.partitions[0], EPOCH)
    assert named(world.fetch()) == [(0, 5)]
    world.answer(fetched(0, batch(3, 4), high_watermark=7, log_start_offset=5))
    assert (world.log.log_start_offset, world.log.log_end_offset) == (5, 7)
    assert named(world.fetch()) == [(0, 7)]


def test_a_fenced_partition_waits_for_the_metadata() -> None:
    """A leader of a newer epoch has refused it."""
    world = World()
    world.fetch()
    world.answer(fetched(0, error_code=int(ErrorCode.FENCED_LEADER_EPOCH)))
    assert world.fetcher.poll(NOW_MS + BACKOFF_MS) is None
    world.fetcher.add(world.partitions[0], EPOCH + 1)
    assert named(world.fetch()) == [(0, 0)]


def test_a_response_to_what_was_asked_before_a_new_epoch_is_dropped() -> None:
    """Its records may not be those of the new leader."""
    world = World()
    world.fetch()
    world.fetcher.add(world.partitions[0], EPOCH + 1)
    world.answer(fetched(0, batch(0)))
    assert world.log.log_end_offset == 0


@pytest.mark.parametrize("times", [1, 100])
def test_a_log_whose_disk_fails_is_reported_and_fetched_no_more(times: int) -> None:
    """Its directory is to go offline, also if what was half written is cut; others go on."""
    disk = SimulatedDisk()
    world = World(partitions=1)
    log = PartitionLog.open(disk, "t-1", config=LogConfig(), now_ms=NOW_MS)
    world.fetcher.add(Partition(TopicPartition("t", 1), TOPIC_ID, log), EPOCH)
    world.fetch()
    disk.fail(lambda call: call.kind != "read", times=times)
    world.answer(fetched(0, batch(0)), fetched(1, batch(0)))
    assert world.moved == [0]
    assert world.failed == [(1, ErrorCode.KAFKA_STORAGE_ERROR)]
    assert named(world.fetch()) == [(0, 1)]


def test_a_log_without_a_descriptor_is_fetched_again_later() -> None:
    """The disk is healthy: its directory stays online."""
    disk = SimulatedDisk()
    world = World(partitions=0)
    log = PartitionLog.open(disk, "t-1", config=LogConfig(), now_ms=NOW_MS)
    world.fetcher.add(Partition(TopicPartition("t", 1), TOPIC_ID, log), EPOCH)
    world.fetch()
    disk.fail(lambda call: call.kind != "read", errno.EMFILE)
    world.answer(fetched(1, batch(0)))
    assert world.failed == []
    assert world.fetcher.due_ms == NOW_MS + BACKOFF_MS
    assert named(world.fetch(NOW_MS + BACKOFF_MS)) == [(1, 0)]


def test_records_that_are_refused_are_fetched_again_later() -> None:
    """Only a failed disk ends the replication of a partition: nothing would begin it again."""
    world = World()

    def of_producer(sequence: int, *, transactional: bool) -> bytes:
        return bytes(
            encode_batch(
                [(NOW_MS, None, b"v", ())],
                base_offset=sequence,
                leader_epoch=EPOCH,
                producer_id=7,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=transactional,
            )
        )

    world.fetch()
    world.answer(
        fetched(0, of_producer(0, transactional=True) + of_producer(1, transactional=False))
    )
    assert world.failed == []
    assert world.fetcher.due_ms == NOW_MS + BACKOFF_MS
    assert named(world.fetch(NOW_MS + BACKOFF_MS)) == [(0, 0)]
    world.answer(fetched(0, batch(0)))
    assert world.log.log_end_offset == 1


def test_a_chunk_larger_than_a_segment_is_copied() -> None:
    """Kafka refuses it, and replicates the partition no more."""
    world = World(partitions=0)
    log = PartitionLog.open(
        SimulatedDisk(), "t-0", config=LogConfig(segment_bytes=150), now_ms=NOW_MS
    )
    world.partitions.append(Partition(TopicPartition("t", 0), TOPIC_ID, log))
    world.fetcher.add(world.partitions[0], EPOCH)
    world.fetch()
    world.answer(fetched(0, batch(0) + batch(1) + batch(2)))
    assert world.failed == []
    assert named(world.fetch()) == [(0, 3)]
    assert log.segments.base_offsets == [0, 2]


def test_the_lag_is_what_is_missing_up_to_the_leaders_high_watermark() -> None:
    """For the metric MaxLag."""
    world = World()
    world.fetch()
    world.answer(fetched(0, batch(0), high_watermark=5))
    assert list(world.fetcher.lags.values()) == [4]


def test_listed_replicas_that_lag_wait_while_the_limit_is_exceeded() -> None:
    """Others go on; listed ones leave the session and come back when less was fetched."""
    world = World(3)
    world.limit.limit = 10.0
    world.limit.list_partitions("t", frozenset((0, 1)))
    assert named(world.fetch()) == [(0, 0), (1, 0), (2, 0)]
    lagging: Any = {"high_watermark": 100}
    world.answer(
        fetched(0, batch(0, 2), **lagging), fetched(1, high_watermark=0), fetched(2, **lagging)
    )
    world.limit.record(1000, NOW_MS)
    second = world.fetch()
    assert named(second) == [], "1 is in sync, 2 is not listed, and both are where they were"
    assert second.forgotten == [("", TOPIC_ID, 0)]
    world.answer(fetched(2, batch(0, 2), **lagging))
    assert named(world.fetch(NOW_MS + 500)) == [(2, 2)]
    world.answer()
    assert named(world.fetch(NOW_MS + 20_000)) == [(0, 2)]


def test_a_replica_that_was_never_fetched_waits_too() -> None:
    """It is not known to be in sync; the limit is looked at every replica.fetch.backoff.ms."""
    world = World()
    world.limit.limit = 10.0
    world.limit.list_partitions("t", None)
    world.limit.record(1000, NOW_MS)
    assert world.fetcher.poll(NOW_MS) is None
    assert world.fetcher.due_ms == NOW_MS + BACKOFF_MS
    world.limit.list_partitions("t", frozenset())
    assert named(world.fetch(NOW_MS + BACKOFF_MS)) == [(0, 0)]


def test_all_that_is_fetched_of_listed_replicas_counts() -> None:
    """Also of those in sync."""
    world = World(2)
    world.limit.list_partitions("t", frozenset((1,)))
    world.fetch()
    records = batch(0, 2)
    world.answer(fetched(0, records, high_watermark=2), fetched(1, records, high_watermark=2))
    assert world.limit.rate(NOW_MS) == len(records)


def test_requests_carry_the_settings() -> None:
    """replica.fetch.max.bytes, .response.max.bytes, .min.bytes and .wait.max.ms."""
    world = World(settings=FetcherSettings(11, 12, 13, 14, BACKOFF_MS))
    request = world.fetch()
    assert (request.max_bytes, request.min_bytes, request.max_wait_ms) == (12, 13, 14)
    assert [asked[-1] for asked in request.partitions.values()] == [11]


def test_nothing_is_fetched_over_a_truncation_that_is_not_durable() -> None:
    """After a power cut bytes that were cut could stand below newer records."""
    world = World()
    world.fetch()
    world.answer(fetched(0, batch(0) + batch(1)))
    world.fetch()
    world.answer(fetched(0, diverging=(EPOCH, 1)))
    assert world.log.log_end_offset == 1
    assert world.fetcher.poll(NOW_MS + 100 * BACKOFF_MS) is None
    with pytest.raises(KafkaError, match="is not durable yet"):
        world.log.writes.append_as_leader(memoryview(bytearray(batch(0))), EPOCH + 1, NOW_MS)
    world.fetcher.add(world.partitions[0], EPOCH + 1)
    assert world.fetcher.poll(NOW_MS) is None, "nor from the next leader"
    world.flush()
    assert named(world.fetch()) == [(0, 1)]


def test_logs_are_truncated_some_at_a_time() -> None:
    """A partition that is to be truncated is not fetched; the others are."""
    world = World(3)
    world.fetch()
    world.answer(*(fetched(index, batch(0, 2), high_watermark=0) for index in range(3)))
    world.fetch()
    diverging = [fetched(index, diverging=(EPOCH, 1)) for index in (0, 1)]
    world.fetcher.received(FetchAnswer(0, 7, diverging), NOW_MS, NOW_MS)
    assert [offset for _, offset in world.fetcher.take_cuts()] == [1, 1]
    assert named(world.fetch()) == [(2, 2)]
    world.fetcher.received(FetchAnswer(0, 7, ()), NOW_MS, NOW_MS)
    assert world.fetcher.truncate(1, NOW_MS, NOW_MS, lambda _log: False)
    world.flush()
    assert named(world.fetch()) == [(0, 0)]
    world.fetcher.received(FetchAnswer(0, 7, ()), NOW_MS, NOW_MS)
    assert not world.fetcher.truncate(1, NOW_MS, NOW_MS, lambda _log: False)
    world.flush()
    assert named(world.fetch()) == [(1, 0)]


def test_a_request_looks_up_a_bounded_number_of_logs() -> None:
    """The others follow with the next requests: to write one of all would delay clients."""
    count = NAMED_AT_ONCE + 1
    world = World(count)
    for _ in range(2):
        world.fetch()
        world.answer()
    world.fetch()
    code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
    world.answer(*(fetched(index, error_code=code) for index in range(count)))
    looked_up: set[int] = set()
    for _ in range(2):
        lookup = world.fetcher.poll(NOW_MS)
        assert isinstance(lookup, ListOffsetsRequest)
        indexes = [one.partition_index for one in lookup.topics[0].partitions]
        looked_up.update(indexes)
        assert len(indexes) <= NAMED_AT_ONCE
        parts = [
            _Offsets.ListOffsetsPartitionResponse(partition_index=index, offset=0, timestamp=-1)
            for index in indexes
        ]
        world.receive(ListOffsetsResponse(topics=[_Offsets(name="t", partitions=parts)]))
    assert looked_up == set(range(count))


def test_a_log_without_leader_epochs_is_cut_before_it_is_fetched() -> None:
    """To its high watermark, as other logs are cut: no flush is waited for, and others go on."""
    disk = SimulatedDisk()
    log = PartitionLog.open(disk, "t-1", config=LogConfig(), now_ms=NOW_MS)
    old = bytes(encode_batch([(NOW_MS, None, b"v", ())] * 3, base_offset=0, leader_epoch=-1))
    log.writes.append_as_follower(memoryview(old), leader_epoch=EPOCH, now_ms=NOW_MS)
    flush(log)
    assert (log.latest_epoch, log.high_watermark, log.log_end_offset) == (-1, 0, 3)
    world = World()
    world.fetcher.add(Partition(TopicPartition("t", 1), TOPIC_ID, log), EPOCH)
    assert log.log_end_offset == 3
    assert named(world.fetch()) == [(0, 0)], "the other one"
    assert world.fetcher.take_cuts() == [(log, 0)]
    assert not world.fetcher.truncate(1, NOW_MS, NOW_MS, lambda _log: False)
    assert log.log_end_offset == 0
    world.receive(FetchAnswer(0, 7, ()))
    assert named(world.fetch()) == []
    world.receive(FetchAnswer(0, 7, ()))
    world.flush()
    assert named(world.fetch()) == [(1, 0)]


def test_a_log_begins_again_behind_what_the_leader_has_in_the_tier() -> None:
    """Its remote state is built once; what failed is tried again after the back-off."""
    world = World()
    moved = int(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
    world.fetch()
    world.answer(fetched(error_code=moved, log_start_offset=3))
    assert world.fetcher.poll(NOW_MS) is None
    (partition, epoch, start_offset, built), *others = world.fetcher.take_remote_states()
    assert (partition, epoch, start_offset, others) == (world.partitions[0], EPOCH, 3, [])
    assert world.fetcher.take_remote_states() == []
    built(None, NOW_MS)
    assert world.fetcher.poll(NOW_MS) is None
    assert named(world.fetch(NOW_MS + BACKOFF_MS)) == [(0, 0)]
    world.answer(fetched(error_code=moved, log_start_offset=3))
    [(_, _, _, built)] = world.fetcher.take_remote_states()
    before = RemoteState(3, [EpochEntry(1, 0), EpochEntry(2, 5)], [])
    built(Cut(8, is_restart=True, before=before), NOW_MS)
    world.fetcher.take_cuts()
    world.fetcher.truncate(1, NOW_MS, NOW_MS, lambda _log: False)
    assert named(world.fetch()) == [(0, 8)]
    log = world.log
    assert (log.log_start_offset, log.local_log_start_offset, log.highest_remote_offset) == (
        3,
        8,
        7,
    )
    assert log.leader_epochs.entries == [(1, 3), (2, 5)]


def test_remote_state_of_a_replica_that_was_removed_is_dropped() -> None:
    """The partition has another leader meanwhile."""
    world = World()
    world.fetch()
    world.answer(fetched(error_code=int(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)))
    [(partition, _, _, built)] = world.fetcher.take_remote_states()
    world.fetcher.remove(partition)
    built(Cut(8, is_restart=True), NOW_MS)
    assert world.fetcher.take_cuts() == []
    assert world.log.log_end_offset == 0
