"""Retention over all logs: in slices, and what it deletes is removed by jobs."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from ottla.errors import CorruptMessage
from ottla.storage.batches import walk_file
from ottla.storage.log.config import LogConfig
from ottla.storage.log_set import removal_queue
from ottla.storage.log_set.retention_check import RetentionCheck
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition
from tests.storage.logs import NOW_MS, TOPIC_ID, put
from tests.storage.sets import finish, make, open_set

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.log_set import LogSet

SMALL = LogConfig(segment_bytes=400, retention_bytes=400, retention_ms=-1)
DELAY_MS = SMALL.file_delete_delay_ms


def logs_of(disk: SimulatedDisk, count: int) -> LogSet:
    """Return logs that have more segments than they may keep."""
    logs = open_set(disk, config=SMALL)
    for number in range(count):
        log = make(logs, TopicPartition("t", number))
        for _ in range(12):
            put(log)
        log.update_high_watermark(log.log_end_offset)
    return logs


def has_lost(log: PartitionLog) -> bool:
    return log.log_start_offset > 0


def deleted_files(disk: SimulatedDisk) -> list[str]:
    return [
        name
        for subdirectory in disk.list()
        if disk.is_directory(subdirectory)
        for name in disk.list(subdirectory)
        if name.endswith(".deleted")
    ]


def test_a_slice_ends_with_the_log_that_loses_something() -> None:
    """Or after so many that do not; logs made meanwhile wait for the next check."""
    logs = logs_of(SimulatedDisk(), 3)
    check = RetentionCheck(logs)
    assert check.step(NOW_MS, None, 5)
    assert [has_lost(log) for log in logs] == [True, False, False]
    made = logs.get_or_create(TopicPartition("u", 0), topic_id=TOPIC_ID, now_ms=NOW_MS)
    assert check.step(NOW_MS, None, 5)
    assert not check.step(NOW_MS, None, 5)
    assert [has_lost(log) for log in logs if log is not made] == [True] * 3
    lost = check.deleted
    assert lost >= 3
    again = RetentionCheck(logs)
    assert again.step(NOW_MS, None, 3)
    assert not again.step(NOW_MS, None, 3)
    assert again.deleted == 0


def test_a_log_that_went_between_two_slices_is_left_alone() -> None:
    """It was deleted, and another one has its name: neither is looked at in this check."""
    logs = logs_of(SimulatedDisk(), 2)
    check = RetentionCheck(logs)
    assert check.step(NOW_MS, None, 1)
    gone = TopicPartition("t", 1)
    old = logs.get(gone)
    assert old is not None
    logs.delete(gone, now_ms=NOW_MS)
    assert not check.step(NOW_MS)
    assert not has_lost(old)


def test_a_disk_that_fails_takes_its_directory_offline_and_the_check_ends() -> None:
    """The logs that went with it are passed over."""
    disk = SimulatedDisk()
    logs = logs_of(disk, 3)
    disk.fail(lambda call: call.kind == "rename", errno.EIO)
    check = RetentionCheck(logs)
    assert not check.step(NOW_MS)
    assert check.deleted == 0
    assert not logs.directories[0].is_online
    assert len(logs) == 0


def test_a_damaged_log_is_skipped_and_reported() -> None:
    """It keeps all it has; the disk is not to blame, and the others have their turn."""
    disk = SimulatedDisk()
    by_time = LogConfig(segment_bytes=400, retention_ms=1)
    logs = open_set(disk, config=by_time)
    for number in range(3):
        log = make(logs, TopicPartition("t", number))
        for _ in range(12):
            put(log)
    logs.shutdown()
    disk.open("t-1/00000000000000000000.log").write_at(_last_batch(disk) + 16, b"\x42")
    logs = open_set(disk, config=by_time)
    for log in logs:
        log.update_high_watermark(log.log_end_offset)
    told = []
    check = RetentionCheck(logs, lambda log, error: told.append((str(log.topic_partition), error)))
    assert not check.step(NOW_MS + 10)
    assert [(name, type(error)) for name, error in told] == [("t-1", CorruptMessage)]
    assert [has_lost(log) for log in logs] == [True, False, True]
    assert logs.directories[0].is_online


def test_workers_read_the_age_of_old_segments() -> None:
    """After a start it is in their files alone, and a cold disk would delay the loop."""
    disk = SimulatedDisk()
    by_time = LogConfig(segment_bytes=400, retention_ms=1_000_000)
    logs = open_set(disk, config=by_time)
    for number in range(3):
        log = make(logs, TopicPartition("t", number))
        for _ in range(12):
            put(log)
    logs.shutdown()
    logs = open_set(disk, config=by_time)
    for log in logs:
        log.update_high_watermark(log.log_end_offset)
    check = RetentionCheck(logs)
    reads = check.reads(2)
    assert len(reads) == 2
    for one in reads:
        one.read()
        one.done()
    assert len(check.reads(3)) == 1
    before = disk.reads
    assert check.step(NOW_MS, None, 2)
    assert disk.reads == before
    assert not check.step(NOW_MS, None, 1)
    assert disk.reads > before


def test_no_age_is_read_for_logs_that_keep_their_segments_for_ever() -> None:
    """With retention.ms -1 only their size counts, which is in memory."""
    disk = SimulatedDisk()
    logs_of(disk, 1).shutdown()
    logs = open_set(disk, config=SMALL)
    assert list(logs)
    assert RetentionCheck(logs).reads(1) == []


def _last_batch(disk: SimulatedDisk) -> int:
    file = disk.open("t-1/00000000000000000000.log")
    return list(walk_file(file, 0, file.size()))[-1].position


@pytest.mark.parametrize(("number", "is_online"), [(errno.EIO, False), (errno.EMFILE, True)])
def test_a_log_that_cannot_be_read_does_not_end_the_check(number: int, *, is_online: bool) -> None:
    """A disk that fails goes offline, as at any other call; what is behind it is looked at."""
    first, second = SimulatedDisk(), SimulatedDisk()
    by_time = LogConfig(segment_bytes=400, retention_ms=1)
    logs = open_set(first, second, config=by_time)
    for index in range(4):
        log = make(logs, TopicPartition("t", index))
        for _ in range(12):
            put(log)
    logs.shutdown()
    logs = open_set(first, second, config=by_time)
    for log in logs:
        log.update_high_watermark(log.log_end_offset)
    first.fail(lambda call: call.kind == "read", number)
    assert not RetentionCheck(logs).step(NOW_MS + 10)
    assert logs.directories[0].is_online is is_online
    assert sum(has_lost(log) for log in logs) == (3 if is_online else 2)


def test_files_are_removed_by_jobs_when_their_delay_is_over() -> None:
    """Not before, and none is left behind."""
    disk = SimulatedDisk()
    logs = logs_of(disk, 2)
    RetentionCheck(logs).step(NOW_MS)
    assert deleted_files(disk)
    assert logs.removals.take_due(NOW_MS + DELAY_MS - 1) == []
    jobs = logs.removals.take_due(NOW_MS + DELAY_MS)
    assert len(jobs) == 2
    assert deleted_files(disk)
    finish(jobs)
    assert deleted_files(disk) == []
    assert logs.removals.take_due(NOW_MS + 2 * DELAY_MS) == []


def test_files_that_a_truncation_left_are_removed() -> None:
    """As those of retention, by the check after it."""
    disk = SimulatedDisk()
    logs = open_set(disk, config=LogConfig(segment_bytes=400))
    log = make(logs)
    for _ in range(12):
        put(log)
    log.truncation.truncate_to(3, now_ms=NOW_MS)
    assert deleted_files(disk)
    RetentionCheck(logs).step(NOW_MS)
    finish(logs.removals.take_due(NOW_MS + DELAY_MS))
    assert deleted_files(disk) == []
    assert not log.has_deleted_segments


def test_segments_without_timestamps_age_from_their_last_write() -> None:
    """As in Kafka: a node that is restarted often must not keep them for ever."""
    disk, config = SimulatedDisk(), LogConfig(segment_bytes=400, retention_ms=1000)
    disk.now_ms = NOW_MS
    logs = open_set(disk, config=config)
    for _ in range(12):
        put(make(logs), timestamp=-1)
    now_ms = NOW_MS
    counts = []
    for _ in range(3):
        logs.shutdown()
        now_ms += 600
        logs = open_set(disk, config=config, now_ms=now_ms)
        log = make(logs)
        log.update_high_watermark(12)
        RetentionCheck(logs).step(now_ms)
        counts.append(log.log_end_offset - log.log_start_offset)
    assert counts == [12, 0, 0]


def test_removals_are_begun_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is over the limit is for the next call."""
    monkeypatch.setattr(removal_queue, "MAX_REMOVALS", 2)
    disk = SimulatedDisk()
    logs = logs_of(disk, 3)
    RetentionCheck(logs).step(NOW_MS)
    first = logs.removals.take_due(NOW_MS + DELAY_MS)
    second = logs.removals.take_due(NOW_MS + DELAY_MS)
    assert [len(first), len(second)] == [2, 1]
    finish(first + second)
    assert deleted_files(disk) == []


def test_a_partition_deleted_before_its_segments_are_removed() -> None:
    """The job finds nothing under the old name: the files go with the partition's directory."""
    disk = SimulatedDisk()
    logs = logs_of(disk, 1)
    RetentionCheck(logs).step(NOW_MS)
    jobs = logs.removals.take_due(NOW_MS + DELAY_MS)
    logs.delete(TopicPartition("t", 0), now_ms=NOW_MS + DELAY_MS)
    finish(jobs)
    assert logs.directories[0].is_online
    assert deleted_files(disk)
    finish(logs.removals.take_due(NOW_MS + 2 * DELAY_MS))
    assert deleted_files(disk) == []


def test_a_removal_that_fails_takes_the_directory_offline() -> None:
    """As any other error of the disk does."""
    disk = SimulatedDisk()
    logs = logs_of(disk, 1)
    RetentionCheck(logs).step(NOW_MS)
    jobs = logs.removals.take_due(NOW_MS + DELAY_MS)
    disk.fail(lambda call: call.kind == "remove", errno.EIO)
    finish(jobs)
    assert not logs.directories[0].is_online
