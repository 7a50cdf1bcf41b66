"""Append, read, roll, truncate, retain, reopen: examples on one log."""

from __future__ import annotations

import errno

import pytest

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.builder import encode_batch
from ottla.records.validation_rules import RecordValidationError
from ottla.storage.batches import whole_batches
from ottla.storage.log.append_info import FetchIsolation, UnexpectedAppendOffset
from ottla.storage.log.config import LogConfig
from ottla.storage.log.partition_log import parse_partition_name
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition, Uuid
from tests.storage.logs import NOW_MS, SMALL, close, content, end, flush, new_log, put, send


def code_of(call: object, *args: object, **kwargs: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*args, **kwargs)  # type: ignore[operator] # any function of the helpers
    return caught.value.code


def test_a_read_gives_the_batch_that_holds_the_offset() -> None:
    """Reads begin at a batch's start, end where asked, and give at least one batch."""
    log = new_log(config=LogConfig())
    for _ in range(5):
        put(log, 3)
    data = log.reads.read(4, 10_000)
    headers = whole_batches(content(data.records))
    assert [header.base_offset for header in headers] == [3, 6, 9, 12][: len(headers)]
    size = headers[0].size
    assert len(content(log.reads.read(4, 1).records)) == size
    assert len(content(log.reads.read(4, size + 10).records)) == size + 10
    assert log.reads.read(15, 100).records == b""


def test_a_batch_that_does_not_fit_is_left_out() -> None:
    """Clients take a response of a part of a batch alone for a record too large to read."""
    log = new_log(config=LogConfig())
    for _ in range(5):
        put(log, 3)
    size = len(content(log.reads.read(4, 1).records))
    for too_few in (0, 1, size - 1):
        assert log.reads.read(4, too_few, min_one_message=False).records == b""
    for enough in (size, size + 1):
        assert len(content(log.reads.read(4, enough, min_one_message=False).records)) == enough


@pytest.mark.parametrize(("max_bytes", "aborted"), [(0, []), (1, None), (100_000, [])])
def test_a_batch_that_does_not_fit_names_no_aborted_transactions(
    max_bytes: int, aborted: list[object] | None
) -> None:
    """A read_committed read of it has null, as in Kafka; one of zero bytes has an empty list."""
    log = new_log(config=LogConfig())
    put(log, 3)
    log.update_high_watermark(3)
    data = log.reads.read(
        0, max_bytes, isolation=FetchIsolation.TXN_COMMITTED, min_one_message=False
    )
    assert data.aborted_transactions == aborted


def test_a_negative_size_is_refused_where_there_is_data() -> None:
    """Kafka's handler fails on it; at the end of the log there is nothing to fail on."""
    log = new_log()
    put(log, 3)
    assert code_of(log.reads.read, 0, -1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert log.reads.read(3, -1).records == b""


def test_reads_respect_their_limit() -> None:
    """Nothing at or above the high watermark is shown; replicas see all (KAFKA-9835)."""
    log = new_log()
    for _ in range(12):
        put(log, 2)
    log.update_high_watermark(10)
    offset, seen = 0, []
    while data := content(
        log.reads.read(offset, 9000, isolation=FetchIsolation.HIGH_WATERMARK).records
    ):
        offset = whole_batches(data)[-1].last_offset + 1
        seen.append(offset)
    assert offset == 10
    assert log.reads.read(12, 500, isolation=FetchIsolation.HIGH_WATERMARK).records == b""
    assert content(log.reads.read(12, 500).records)


@pytest.mark.parametrize("offset", [-1, 25, 99])
def test_offsets_outside_are_refused(offset: int) -> None:
    """Below the start and above the end."""
    log = new_log()
    for _ in range(12):
        put(log, 2)
    assert code_of(log.reads.read, offset, 100) is ErrorCode.OFFSET_OUT_OF_RANGE
    log.update_high_watermark(24)
    log.truncation.delete_records_before(7)
    assert code_of(log.reads.read, 6, 100) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert content(log.reads.read(7, 100).records)


def test_every_offset_is_found_in_cold_and_warm_segments() -> None:
    """By tail, by index, in the middle of a batch, before and after a restart."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(60):
        put(log, 1 + number % 4, size=number)
    for _ in range(2):
        for offset in range(log.log_end_offset):
            header = whole_batches(content(log.reads.read(offset, 1).records))[0]
            assert header.base_offset <= offset <= header.last_offset
        close(log)
        log = new_log(disk, clean=True)


def test_segments_roll_by_size_time_and_index() -> None:
    """segment.bytes, segment.ms by record time, a full index."""
    log = new_log(config=LogConfig(segment_bytes=400, segment_ms=1000))
    put(log, size=100)
    put(log, size=100)
    assert len(log.segments) == 1
    put(log, size=100)
    assert len(log.segments) == 2
    put(log, size=10, timestamp=NOW_MS + 1000)
    assert len(log.segments) == 2
    put(log, size=10, timestamp=NOW_MS + 1001)
    assert len(log.segments) == 3
    tight = new_log(config=LogConfig(segment_index_bytes=24, index_interval_bytes=10))
    for number in range(6):
        put(tight, timestamp=NOW_MS + number)
    assert len(tight.segments) > 1


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    """RECORD_LIST_TOO_LARGE, and nothing is written."""
    log = new_log(config=LogConfig(segment_bytes=100))
    assert code_of(put, log, size=200) is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


@pytest.mark.parametrize("segment_bytes", [100, 200, 399, 400, 100_000])
def test_followers_copy_whatever_the_size_of_their_segments(segment_bytes: int) -> None:
    """A chunk may be larger than one, and so may a batch since segment.bytes was lowered."""
    leader, disk = new_log(), SimulatedDisk()
    for size in (10, 300, 10, 10, 500, 10):
        put(leader, size=size)
    data = b"".join(segment.file.read(0, segment.size) for segment in leader.segments)
    config = LogConfig(segment_bytes=segment_bytes)
    follower = new_log(disk, config=config)
    for chunk in (data[: whole_batches(data)[3].position], data[whole_batches(data)[3].position :]):
        info = follower.writes.append_as_follower(chunk, leader_epoch=0, now_ms=NOW_MS)
        assert info is not None
        assert info.size_bytes == len(chunk)
    copied = [segment.file.read(0, segment.size) for segment in follower.segments]
    assert b"".join(copied) == data
    assert all(len(one) <= segment_bytes or len(whole_batches(one)) == 1 for one in copied)
    assert all(copied)
    close(follower)
    assert new_log(disk, config=config, clean=True).log_end_offset == 6


def test_the_high_watermark_stays_inside_the_log() -> None:
    """It follows truncation, and never leaves start and end (KAFKA-9491)."""
    log = new_log()
    for _ in range(10):
        put(log)
    assert log.update_high_watermark(99) == 10
    log.truncation.truncate_to(4, now_ms=NOW_MS)
    assert log.high_watermark == 4
    log.truncation.truncate_fully_and_start_at(70, now_ms=NOW_MS)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (70, 70, 70)
    assert log.leader_epochs.entries == []
    flush(log)
    assert put(log).first_offset == 70


def test_truncation_cuts_exactly_there() -> None:
    """At every batch's start what is before stays, byte for byte, and appends go on."""
    for target in range(0, 40, 2):
        disk = SimulatedDisk()
        log = new_log(disk)
        for _ in range(20):
            put(log, 2)
        before = b"".join(segment.file.read(0, segment.size) for segment in log.segments)
        log.truncation.truncate_to(target, now_ms=NOW_MS)
        after = b"".join(segment.file.read(0, segment.size) for segment in log.segments)
        assert before.startswith(after)
        assert log.size_bytes == len(after)
        flush(log)
        assert put(log).first_offset == target
        assert new_log(disk).log_end_offset == target + 1


def test_truncation_inside_a_batch_ends_where_the_batch_began() -> None:
    """Memory and file agree: no offset below the end is missing from the file."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for _ in range(4):
        put(log, 5)
    log.update_high_watermark(20)
    log.truncation.truncate_to(13, now_ms=NOW_MS)
    assert (log.log_end_offset, log.recovery_point, log.high_watermark) == (10, 0, 10)
    assert log.producer_state.end_offset == 10
    disk.kill()
    reopened = new_log(disk)
    assert reopened.log_end_offset == 10
    assert put(reopened).first_offset == 10


def test_truncate_to_an_empty_segment_append_and_roll() -> None:
    """KAFKA-6492: no two segments of one name; a crash afterwards recovers."""
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log)
    log.roll(NOW_MS)
    put(log)
    log.truncation.truncate_to(1, now_ms=NOW_MS)
    log.roll(NOW_MS)
    flush(log)
    put(log)
    log.roll(NOW_MS)
    assert log.segments.base_offsets == [0, 1, 2]
    disk.kill()
    assert new_log(disk).log_end_offset == 2


def test_retention_by_time_keeps_the_unreplicated() -> None:
    """Old segments go below the high watermark, the active one is rolled first, data stays off."""
    log = new_log(config=LogConfig(segment_bytes=400, retention_ms=1000, file_delete_delay_ms=50))
    for number in range(10):
        put(log, timestamp=NOW_MS + number)
    assert log.truncation.delete_old_segments(NOW_MS + 5000) == 0
    log.update_high_watermark(5)
    log.truncation.delete_old_segments(NOW_MS + 5000)
    assert 0 < log.log_start_offset <= 5
    log.update_high_watermark(10)
    log.truncation.delete_old_segments(NOW_MS + 5000)
    assert log.log_start_offset == log.log_end_offset == 10
    assert log.size_bytes == 0
    assert any(name.endswith(".deleted") for name in log.directory.list("t-0"))
    for segment in log.take_removable(NOW_MS + 5050):
        segment.remove_files()
    assert not any(name.endswith(".deleted") for name in log.directory.list("t-0"))


def test_retention_by_size_and_policy() -> None:
    """The oldest segments above retention.bytes go; a compacted topic keeps all (KAFKA-7322)."""
    config = LogConfig(segment_bytes=400, retention_bytes=1000, retention_ms=-1)
    log = new_log(config=config)
    for _ in range(20):
        put(log)
    log.update_high_watermark(20)
    log.reconfigure(LogConfig(segment_bytes=400, retention_bytes=1000, cleanup_policy=("compact",)))
    assert log.truncation.delete_old_segments(NOW_MS) == 0
    log.reconfigure(config)
    assert log.truncation.delete_old_segments(NOW_MS) > 0
    assert 1000 <= log.size_bytes < 1400
    assert log.log_start_offset == log.segments[0].base_offset


def test_deleted_records_stay_deleted() -> None:
    """DeleteRecords moves the start up to the high watermark and no further."""
    log = new_log()
    for _ in range(10):
        put(log)
    assert code_of(log.truncation.delete_records_before, 1) is ErrorCode.OFFSET_OUT_OF_RANGE
    log.update_high_watermark(8)
    assert log.truncation.delete_records_before(5) == 5
    assert log.truncation.delete_records_before(-1) == 8
    assert log.truncation.delete_records_before(3) == 8


def test_followers_copy_what_leaders_wrote() -> None:
    """The same bytes, offsets, epochs; gaps of compaction are fine; old and torn ones are not."""
    leader, follower = new_log(), new_log()
    for number in range(10):
        put(leader, 2, epoch=number // 4)
    data = b"".join(segment.file.read(0, segment.size) for segment in leader.segments)
    for header in whole_batches(data):
        raw = data[header.position : header.position + header.size]
        if header.base_offset != 8:
            assert (
                follower.writes.append_as_follower(raw, leader_epoch=2, now_ms=NOW_MS) is not None
            )
    assert follower.log_end_offset == 20
    assert follower.leader_epochs.entries == [(0, 0), (1, 10), (2, 16)]
    assert whole_batches(content(follower.reads.read(8, 1).records))[0].base_offset == 10
    follower.update_high_watermark(9)
    at_gap = content(follower.reads.read(6, 1000, isolation=FetchIsolation.HIGH_WATERMARK).records)
    assert [header.base_offset for header in whole_batches(at_gap)] == [6]
    first = data[: whole_batches(data)[0].size]
    with pytest.raises(UnexpectedAppendOffset):
        follower.writes.append_as_follower(first, leader_epoch=2, now_ms=NOW_MS)
    last = whole_batches(data)[-1]
    broken = bytearray(data[last.position :])
    unfinished = broken[:-1]
    assert follower.writes.append_as_follower(unfinished, leader_epoch=2, now_ms=NOW_MS) is None
    broken[-1] ^= 1
    with pytest.raises(CorruptMessage):
        follower.writes.append_as_follower(broken, leader_epoch=2, now_ms=NOW_MS)


def test_offsets_far_from_a_segments_base_begin_another() -> None:
    """Relative offsets have 31 bits: a gap that is wider makes a segment (KAFKA-5413)."""
    disk = SimulatedDisk()
    config = LogConfig(index_interval_bytes=0, cleanup_policy=("compact",))
    log = new_log(disk, config=config)
    put(log)
    far = (1 << 31) + 5
    for number in range(3):
        batch = encode_batch([(NOW_MS, b"k", b"v", ())], base_offset=far + number)
        log.writes.append_as_follower(batch, leader_epoch=0, now_ms=NOW_MS)
    assert log.segments.base_offsets == [0, far]
    assert new_log(disk, config=config).log_end_offset == far + 3
    chunk = b"".join(segment.file.read(0, segment.size) for segment in log.segments)
    copy_disk = SimulatedDisk()
    copy = new_log(copy_disk, config=config)
    copy.writes.append_as_follower(chunk, leader_epoch=0, now_ms=NOW_MS)
    assert copy.segments.base_offsets == [0, far]
    assert new_log(copy_disk, config=config).log_end_offset == far + 3


def test_a_follower_skips_batches_of_a_newer_epoch() -> None:
    """What comes from a leader we do not know yet is left for the next fetch."""
    leader, follower = new_log(), new_log()
    put(leader, epoch=1)
    put(leader, epoch=2)
    data = leader.segments[0].file.read(0, leader.size_bytes)
    info = follower.writes.append_as_follower(data, leader_epoch=1, now_ms=NOW_MS)
    assert info is not None
    assert follower.log_end_offset == 1
    rest = data[whole_batches(data)[0].size :]
    assert follower.writes.append_as_follower(rest, leader_epoch=1, now_ms=NOW_MS) is None


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_torn_append_leaves_no_trace(number: int) -> None:
    """KAFKA-10778: half a batch is cut off again; the next append lands where it should."""
    disk = SimulatedDisk(5)
    log = new_log(disk)
    put(log)
    disk.fail(lambda call: call.kind == "append", number)
    assert code_of(put, log) is ErrorCode.KAFKA_STORAGE_ERROR
    assert put(log).first_offset == 1
    assert new_log(disk).log_end_offset == 2


def test_a_tail_that_cannot_be_cut_fences_the_log() -> None:
    """When the cut fails as well, nothing is ever written behind the torn batch."""
    disk = SimulatedDisk(5)
    log = new_log(disk)
    put(log)
    disk.fail(lambda call: call.kind in ("append", "truncate"), times=2)
    assert code_of(put, log) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is not None
    assert code_of(put, log) is ErrorCode.KAFKA_STORAGE_ERROR
    assert new_log(disk).log_end_offset == 1


def test_running_out_of_descriptors_fences_nothing() -> None:
    """EMFILE says nothing about the disk: the same append succeeds later, also across a roll."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for _ in range(30):
        disk.fail(lambda call: call.kind in ("append", "create"), errno.EMFILE, partial=False)
        end = log.log_end_offset
        assert code_of(put, log) is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.failure is None
        disk.heal()
        assert put(log).first_offset == end
    assert len(log.segments) > 3
    assert new_log(disk).log_end_offset == 30


def test_a_refused_first_append_after_a_start_is_not_written() -> None:
    """What has to be read for it is read before: the same offset is never given twice."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(9):
        put(log, timestamp=NOW_MS + number)
    close(log)
    log = new_log(disk, clean=True)
    size = log.segments.active.size
    for _ in range(2):
        disk.fail(lambda call: call.kind == "read" and "timeindex" in call.path, errno.EMFILE)
        assert code_of(put, log) is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.segments.active.size == log.segments.active.file.size() == size
    assert put(log).first_offset == 9
    assert new_log(disk).log_end_offset == 10


def test_a_failed_sync_is_never_retried() -> None:
    """The page may be clean and lost: the log is fenced at once."""
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log)
    job = log.flushes.start()
    assert job is not None
    disk.fail(lambda call: call.kind == "sync")
    with pytest.raises(OSError, match="EIO") as caught:
        job.run()
    with pytest.raises(KafkaError):
        log.flushes.completed(job, caught.value)
    assert log.failure is not None
    assert log.recovery_point == 0


def test_a_flush_started_before_a_truncation_counts_for_nothing() -> None:
    """Its offset speaks of bytes that are gone."""
    log = new_log()
    for _ in range(5):
        put(log)
    job = log.flushes.start()
    assert job is not None
    assert log.flushes.start() is None
    log.truncation.truncate_to(2, now_ms=NOW_MS)
    job.run()
    log.flushes.completed(job)
    assert log.recovery_point <= 2
    assert code_of(put, log) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    flush(log)
    put(log)
    flush(log)
    assert log.recovery_point == 3
    assert log.flushes.start() is None


def test_a_flush_of_a_deleted_log_does_not_matter() -> None:
    """KAFKA-13403: the directory is renamed and gone while the job runs."""
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log)
    job = log.flushes.start()
    assert job is not None
    log.delete()
    disk.rename("t-0", "t-0.x-delete")
    disk.remove_tree("t-0.x-delete")
    job.run()
    assert job.vanished
    log.flushes.completed(job)
    assert log.failure is None
    assert code_of(put, log) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_snapshot_that_retention_takes_meanwhile_does_not_matter() -> None:
    """The worker comes to it after its segment is gone."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for _ in range(20):
        put(log)
    log.update_high_watermark(20)
    job = log.flushes.start()
    assert job is not None
    assert len(job.snapshots) > 1
    log.truncation.delete_records_before(15)
    assert log.truncation.delete_old_segments(NOW_MS)
    job.run()
    log.flushes.completed(job)
    assert log.recovery_point == 20


def test_another_incarnation_is_refused() -> None:
    """A log keeps the topic id it has (KAFKA-12257)."""
    log = new_log()
    assert code_of(log.assign_topic_id, Uuid(b"x" * 16)) is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_refusal_names_the_partition() -> None:
    """A record without key for a compacted log is refused in words that say where."""
    log = new_log(config=LogConfig(cleanup_policy=("compact",)))
    batch = encode_batch([(NOW_MS, None, b"value", ())])
    with pytest.raises(RecordValidationError) as refused:
        log.writes.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.record_errors[0][1].endswith("topic partition t-0")


def test_jitter_stays_below_the_age_at_which_segments_roll() -> None:
    """A larger segment.jitter.ms would roll with every append (Kafka takes the smaller one)."""
    for config in (
        LogConfig(segment_ms=60_000, segment_jitter_ms=3_600_000),
        LogConfig(segment_ms=1, segment_jitter_ms=1),
    ):
        log = new_log(config=config)
        assert 0 <= log.segments.active.roll_jitter_ms < config.segment_ms
        for _ in range(20):
            put(log)
        assert len(log.segments) == 1


def test_an_empty_segment_does_not_roll_for_its_age() -> None:
    """Not even when segment.ms became shorter than the jitter that it has."""
    log = new_log(config=LogConfig(segment_jitter_ms=3_600_000))
    log.segments.active.roll_jitter_ms = 3_600_000
    log.reconfigure(LogConfig(segment_ms=1000))
    file = log.segments.active.file
    put(log)
    assert log.segments.active.file is file


def test_settings_reach_the_producers() -> None:
    """producer.id.expiration.ms can be changed while a node runs."""
    log = new_log()
    log.reconfigure(LogConfig(producer_id_expiration_ms=5000))
    assert log.producer_state.producer_id_expiration_ms == 5000


def test_reads_of_indexes_that_fail_are_the_disks_fault() -> None:
    """ListOffsets by time and the aborts of a read_committed fetch, as any other read."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(4):
        put(log, timestamp=NOW_MS + number)
    send(log, 1, 0, transactional=True)
    end(log, 1, commit=False)
    close(log)
    log = new_log(disk, clean=True)
    log.update_high_watermark(log.log_end_offset)
    committed = FetchIsolation.TXN_COMMITTED
    for part, read in (
        (".timeindex", lambda: log.reads.offset_for_timestamp(NOW_MS + 2)),
        (".txnindex", lambda: log.reads.read(0, 1000, isolation=committed)),
    ):
        disk.fail(lambda call, part=part: call.path.endswith(part), errno.EIO)  # type: ignore[misc] # a lambda's default binds the loop's value
        with pytest.raises(KafkaError, match="EIO") as caught:
            read()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        read()


def test_names_of_partitions() -> None:
    """The last dash divides topic and number."""
    assert parse_partition_name("a-b-12") == TopicPartition("a-b", 12)
    for name in ("topic", "-1", "topic-x", "topic-"):
        with pytest.raises(ValueError, match="partition"):
            parse_partition_name(name)


def test_idle_segments_hold_no_descriptors() -> None:
    """Two quiet rounds close every file and forget the old indexes; reads bring them back."""
    log = new_log(config=SMALL)
    for _ in range(30):
        put(log)
    log.release_idle()
    assert log.release_idle() == len(log.segments)
    assert not log.segments[0].offset_index.is_loaded
    assert content(log.reads.read(3, 10).records)
    assert put(log).first_offset == 30
