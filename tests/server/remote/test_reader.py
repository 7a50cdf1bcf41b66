"""Reads of the tier by a node: what a client gets of records that the local log has no longer."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clock import Clock
from ottla.config.broker import parse_broker_config
from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.loop import Loop
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.purgatory.work import Worker
from ottla.records.batches import iterate_batches
from ottla.server.node.settings import development_defaults
from ottla.server.remote.reader import RemoteReader
from ottla.storage.log.append_info import FetchIsolation, OffsetMovedToTier
from ottla.storage.log.timestamps import offset_for_timestamp
from ottla.storage.remote.partition_segments import PartitionSegments
from ottla.storage.remote.segment import SegmentState, SegmentUpdate
from ottla.storage.remote.storage_manager import RemoteStorageError
from tests.storage.logs import NOW_MS, TOPIC_ID, content, end, new_log, put, send
from tests.storage.remote.tiers import MemoryTier

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.remote.segment import RemoteSegment

UNCOMMITTED, COMMITTED = FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED
MUCH = 1 << 20


class Time(Clock):
    """A clock that stands still."""

    ms = 0

    def now_ms(self) -> int:
        return NOW_MS + self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class Segments:
    """A log manager that knows segments of one log in a tier in memory."""

    def __init__(self, tier: MemoryTier) -> None:
        self.storage = tier
        self.index_cache: Any = tier
        self.table = PartitionSegments()

    def add(self, segments: list[RemoteSegment]) -> None:
        for segment in segments:
            assert self.table.apply(replace(segment, state=SegmentState.COPY_SEGMENT_STARTED))
            assert self.table.apply(
                SegmentUpdate(
                    topic_id=segment.topic_id,
                    topic=segment.topic,
                    partition=segment.partition,
                    segment_id=segment.segment_id,
                    broker_id=segment.broker_id,
                    event_timestamp_ms=NOW_MS,
                    state=SegmentState.COPY_SEGMENT_FINISHED,
                )
            )

    def segment_at(self, partition: tuple[Any, int], epoch: int, offset: int) -> Any:
        assert partition == (TOPIC_ID, 0)
        return self.table.segment_at(epoch, offset)


class Node:
    """A reader whose turns and jobs the test runs."""

    def __init__(self, **settings: str) -> None:
        self.tier = MemoryTier()
        self.segments = Segments(self.tier)
        self.clock = Time()
        self.turns: deque[Callable[[], None]] = deque()
        self.jobs: deque[Callable[[], None]] = deque()
        self.timer = TimingWheel(0)
        loop = Loop(self.clock, self.timer, Worker(self.turns.append))
        names = {name.replace("_", "."): value for name, value in settings.items()}
        config = parse_broker_config(development_defaults() | names)
        self.reader = RemoteReader(self.segments, config, loop, self._add)
        self.counts = self.reader.counts["t"]

    def _add(self, job: Callable[[], Any], done: Callable[[Any, Any], None]) -> None:
        def run() -> None:
            try:
                result = job()
            except Exception as error:
                done(None, error)
            else:
                done(result, None)

        self.jobs.append(run)

    def run(self) -> None:
        """Run all turns and jobs to the end."""
        while self.turns or self.jobs:
            (self.turns or self.jobs).popleft()()

    def read(
        self,
        log: PartitionLog,
        offset: int,
        max_bytes: int = MUCH,
        isolation: FetchIsolation = UNCOMMITTED,
    ) -> Any:
        """Return what the tier has at offset."""
        requested = OffsetMovedToTier(offset, max_bytes, min_one_message=True)
        read = self.reader.read(log, requested, isolation)
        self.run()
        return read.result.value


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def log(node: Node) -> PartitionLog:
    """Return a log of three leader epochs, whose oldest segments are in the tier alone."""
    log = new_log()
    for number in range(60):
        if number % 20 == 0:
            log.assign_epoch(number // 20 * 2)
        put(log, 2, epoch=number // 20 * 2, timestamp=NOW_MS + number * 10)
    log.update_high_watermark(120)
    node.segments.add(node.tier.take_over(log, 14))
    assert log.segments[0].base_offset > 80
    return log


def test_all_records_come_from_both_tiers(node: Node, log: PartitionLog) -> None:
    """From the first offset to the end, over leader epochs that change within segments."""
    offset, from_tier = 0, 0
    while offset < 120:
        try:
            data, aborted = log.reads.find(offset, 400, UNCOMMITTED, min_one_message=True)
        except OffsetMovedToTier as moved:
            read = node.reader.read(log, moved, UNCOMMITTED)
            node.run()
            data, aborted = read.result.value
            from_tier += 1
        assert aborted is None
        batches = list(iterate_batches(memoryview(content(data)), partial_tail=True))
        assert batches[0].base_offset <= offset <= batches[-1].last_offset
        offset = batches[-1].last_offset + 1
    assert from_tier > 8
    assert node.reader.open_count == 0
    assert node.counts.read_count == from_tier


def test_what_is_not_in_the_lineage_is_out_of_range(node: Node, log: PartitionLog) -> None:
    """A segment of another leader's epoch has other records at the same offset."""
    log.leader_epochs.entries[0] = log.leader_epochs.entries[0]._replace(epoch=1)
    with pytest.raises(KafkaError, match="does not exist in remote tier") as missing:
        node.read(log, 3)
    assert missing.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert not node.counts.failed_read_count


def test_errors_of_the_tier_are_answers(
    node: Node, log: PartitionLog, caplog: pytest.LogCaptureFixture
) -> None:
    """A tier that fails or lies; one line says so, and the next read is served again."""

    def fail(_segment: RemoteSegment) -> None:
        raise RemoteStorageError("the bucket is gone")

    node.tier.before_read = fail
    with pytest.raises(KafkaError, match="the bucket is gone") as failed:
        node.read(log, 3)
    assert failed.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    node.tier.before_read = lambda _segment: None
    segment = node.segments.table.segment_at(0, 3)
    assert segment is not None
    whole = node.tier.logs[segment.segment_id]
    node.tier.logs[segment.segment_id] = whole[:-1] + b"?"
    with pytest.raises(KafkaError) as corrupt:
        node.read(log, 3)
    assert corrupt.value.code is ErrorCode.CORRUPT_MESSAGE
    assert node.counts.failed_read_count == 2
    node.tier.logs[segment.segment_id] = whole
    assert node.read(log, 3)[0]
    assert node.reader.open_count == 0
    (line,) = [record.message for record in caplog.records]
    assert "t-0 at 3: the bucket is gone" in line
    node.tier.before_read = fail
    with pytest.raises(KafkaError):
        node.read(log, 3)
    assert len(caplog.records) == 2


def test_too_many_reads_are_refused_and_abandoned_ones_cost_nothing(log: PartitionLog) -> None:
    """The queue has an end; an abandoned read does not reach the tier."""
    node = Node(remote_log_reader_threads="1", remote_log_reader_max_pending_tasks="2")
    node.segments.add([node.tier.copy(new_log_with_three(), new_log_with_three().segments[0])])
    requested = OffsetMovedToTier(0, MUCH, min_one_message=True)
    log = new_log_with_three()
    reads = [node.reader.read(log, requested, UNCOMMITTED) for _ in range(4)]
    assert isinstance(reads[3].result.error, KafkaError)
    assert reads[3].result.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    answers: list[int] = []
    node.reader.wait_for_fetches(reads[1:], lambda: answers.append(1))
    node.clock.ms = 500
    node.timer.advance(500)
    assert answers == [1]
    node.run()
    assert reads[0].result.succeeded
    assert reads[1].result.error
    assert node.tier.read_count == 1
    assert answers == [1]
    assert not list(node.reader.stalls())
    assert node.reader.open_count == node.reader.fetches.delayed_count == 0


def new_log_with_three() -> PartitionLog:
    log = new_log()
    put(log)
    log.roll(NOW_MS)
    return log


def test_answers_come_when_the_last_read_is_done(node: Node, log: PartitionLog) -> None:
    """Not before, and once."""
    requested = [OffsetMovedToTier(offset, MUCH, min_one_message=True) for offset in (0, 30)]
    reads = [node.reader.read(log, one, UNCOMMITTED) for one in requested]
    answers: list[bool] = []
    node.reader.wait_for_fetches(
        reads, lambda: answers.append(all(one.result.succeeded for one in reads))
    )
    while node.turns or len(node.jobs) > 1:
        (node.turns or node.jobs).popleft()()
    assert answers == []
    node.run()
    assert answers == [True]


def test_the_rate_of_reads_is_measured(log: PartitionLog) -> None:
    """Above the limit the tier is not read until the rate has gone down."""
    node = Node(remote_log_manager_fetch_max_bytes_per_second="100")
    other = new_log()
    for _ in range(10):
        put(other, 2)
    other.update_high_watermark(20)
    node.segments.add(node.tier.take_over(other, 1))
    assert not node.reader.must_wait()
    node.read(other, 0)
    assert node.reader.must_wait()
    node.clock.ms = 60_000
    assert not node.reader.must_wait()
    assert log


@pytest.mark.parametrize("tiered", [1, 2, 3])
def test_aborts_come_from_the_tier_and_then_from_the_local_log(node: Node, tiered: int) -> None:
    """As if all segments were local: each abort that a reader must filter, once."""
    log = new_log()
    sequences = {7: 0, 8: 0}
    for number in range(24):
        producer = 7 + number % 2
        send(log, producer, sequences[producer], 2, transactional=True)
        sequences[producer] += 2
        if number % 3:
            end(log, producer, commit=number % 2 == 0)
        log.update_high_watermark(log.log_end_offset)
    for producer in (7, 8):
        end(log, producer, commit=False)
    log.update_high_watermark(log.log_end_offset)
    assert len(log.segments) == 4
    expected = {}
    for offset in range(log.segments[tiered].base_offset):
        found, aborted = log.reads.find(offset, MUCH, COMMITTED, min_one_message=True)
        expected[offset] = content(found), aborted
    node.segments.add(node.tier.take_over(log, tiered))
    for offset, (records, aborted) in expected.items():
        found, remote = node.read(log, offset, isolation=COMMITTED)
        assert content(found) == records
        assert remote is not None
        assert len(set(remote)) == len(remote)
        assert set(aborted or ()) <= set(remote)


def test_times_are_found_in_the_tier(node: Node) -> None:
    """As if all segments were local; None where the local log has the answer."""
    log = new_log()
    for number in range(60):
        put(log, 2, timestamp=NOW_MS + number * 10)
    times = range(NOW_MS - 5, NOW_MS + 605, 5)
    answers = {time: offset_for_timestamp(log, time) for time in times}
    node.segments.add(node.tier.take_over(log, 4))
    start = log.segments[0].base_offset
    for time, expected in answers.items():
        search = node.reader.search(log, time)
        node.run()
        found = search.result.value
        if expected is not None and expected.offset < start:
            assert found == expected
        else:
            assert found is None
            assert offset_for_timestamp(log, time) == expected


def test_records_that_an_unclean_election_replaced_are_not_served(node: Node) -> None:
    """A segment of another leader ends for this log where its own next epoch begins."""
    other, log = new_log(), new_log()
    for one in (other, log):
        one.assign_epoch(0)
        for number in range(4):
            put(one, 1, epoch=0, timestamp=NOW_MS + number, size=9)
    for number in range(4, 8):
        put(other, 1, epoch=0, timestamp=NOW_MS + number, size=9)
    other.roll(NOW_MS)
    other.update_high_watermark(8)
    log.assign_epoch(2)
    for number in range(12):
        put(log, 1, epoch=2, timestamp=NOW_MS + 100 + number)
    log.update_high_watermark(16)
    replaced = node.tier.copy(other, other.segments[0], 100)
    assert (replaced.start_offset, replaced.end_offset) == (0, 7)
    count = next(n for n, one in enumerate(log.segments.ordered) if one.base_offset > 4)
    node.segments.add(node.tier.take_over(log, count))
    node.segments.add([replaced])
    served: list[tuple[int, int]] = []
    while len(served) < log.segments[0].base_offset:
        data, aborted = node.read(log, len(served), isolation=COMMITTED)
        assert aborted == []
        batches = list(iterate_batches(memoryview(data), partial_tail=True))
        served += [(one.base_offset, one.leader_epoch) for one in batches]
    assert served == [(n, 0 if n < 4 else 2) for n in range(len(served))]
    for time, found in ((3, 3), (4, 4), (101, 5)):
        search = node.reader.search(log, NOW_MS + time)
        node.run()
        assert search.result.value is not None
        assert search.result.value.offset == found


def test_a_replaced_leader_does_not_abort_transactions(node: Node) -> None:
    """Its marker is after the records that the log has, too; the log committed them."""
    other, log = new_log(), new_log()
    for one in (other, log):
        one.assign_epoch(0)
        send(one, 7, 0, 2, transactional=True)
    end(other, 7, commit=False)
    other.roll(NOW_MS)
    other.update_high_watermark(3)
    log.assign_epoch(2)
    end(log, 7, commit=True, epoch=2)
    log.update_high_watermark(3)
    node.segments.add([node.tier.copy(other, other.segments[0])])
    data, aborted = node.read(log, 0, isolation=COMMITTED)
    assert [one.base_offset for one in iterate_batches(memoryview(data))] == [0]
    assert aborted == []
