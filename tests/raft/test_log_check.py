"""Damage in the metadata log: acknowledged records are never cut off, snapshots are verified."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.raft.log_check import _RECOVERY_POINT_PATH, read_recovery_point
from ottla.raft.replicated_log import (
    RECOVERY_POINT_INTERVAL_MS,
    RECOVERY_POINT_INTERVAL_RECORDS,
    ReplicatedLog,
)
from ottla.raft.snapshot import encode_snapshot, snapshot_name
from ottla.records.builder import encode_batch
from ottla.storage.batches import walk_file
from ottla.storage.layout import METADATA_LOG
from ottla.testing.disk import SimulatedDisk
from ottla.types import OffsetAndEpoch

LOG = f"{METADATA_LOG}/{0:020d}.log"


def open_log(disk: SimulatedDisk, now_ms: int = 0) -> ReplicatedLog:
    return ReplicatedLog.open(disk, now_ms=now_ms, path="/data")


def append(log: ReplicatedLog, count: int, *, epoch: int = 1, flushed: bool = True) -> None:
    """Append batches of two records as a leader does: each is flushed before the next one."""
    for _ in range(count):
        records = [(0, None, b"value", ())] * 2
        data = encode_batch(records, base_offset=log.end_offset, leader_epoch=epoch)
        log.append(data, epoch=epoch, now_ms=0)
        if flushed:
            flush(log)


def flush(log: ReplicatedLog, now_ms: int = 0) -> None:
    job = log.start_flush(now_ms)
    assert job is not None
    job.run()
    log.flush_completed(job)
    log.update_high_watermark(log.end_offset)


def written(count: int = 10, *, closed: bool) -> SimulatedDisk:
    """Return a disk with a log of `count` batches, closed cleanly or killed."""
    disk = SimulatedDisk()
    log = open_log(disk)
    append(log, count)
    if closed:
        log.close(is_to_be_flushed=True)
    disk.kill()
    return disk


def put_snapshot(
    disk: SimulatedDisk, offset: int, epoch: int = 1, leader_epoch: int | None = None
) -> str:
    """Write a snapshot file; return its path."""
    path = f"{METADATA_LOG}/{snapshot_name(OffsetAndEpoch(offset, epoch))}"
    batch_epoch = epoch if leader_epoch is None else leader_epoch
    data = encode_snapshot([b"x"], now_ms=0, leader_epoch=batch_epoch)
    disk.write_file_atomically(path, data)
    return path


def flip(disk: SimulatedDisk, path: str, position: int) -> None:
    file = disk.open(path)
    file.write_at(position, bytes([file.read(position, 1)[0] ^ 0x10]))


def positions(disk: SimulatedDisk) -> list[tuple[int, int]]:
    """Return (position, size) of each batch."""
    file = disk.open(LOG)
    return [(header.position, header.size) for header in walk_file(file, 0, file.size())]


def content(disk: SimulatedDisk) -> dict[str, bytes]:
    return {
        name: disk.read_file(f"{METADATA_LOG}/{name}")
        for name in disk.list(METADATA_LOG)
        if name.endswith((".log", ".checkpoint", "-checkpoint"))
    }


def assert_refused(disk: SimulatedDisk, text: str) -> None:
    """Check that opening fails with one line that names the way out, and changes no file."""
    before = content(disk)
    with pytest.raises(KafkaError, match=text) as caught:
        open_log(disk)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    message = str(caught.value)
    assert "\n" not in message
    assert "ottla log-repair --log-dir /data --partition __cluster_metadata-0" in message
    assert content(disk) == before


@pytest.mark.parametrize("number", [0, 4, 9])
@pytest.mark.parametrize("at", [0, 7, 8, 11, 12, 16, 20, 40, 70])
@pytest.mark.parametrize("snapshot", [0, 12, 20])
def test_a_flipped_bit_in_a_closed_log_cuts_nothing(number: int, at: int, snapshot: int) -> None:
    """Whatever the bit is in, and whether or not a snapshot lies above it."""
    disk = written(closed=True)
    if snapshot:
        put_snapshot(disk, snapshot)
    position, _ = positions(disk)[number]
    before = content(disk)
    flip(disk, LOG, position + at)
    try:
        log = open_log(disk)
    except KafkaError:
        flip(disk, LOG, position + at)
        assert content(disk) == before
    else:  # the epoch is not covered by the checksum, or a snapshot holds all
        assert log.end_offset == 20


def test_damage_before_valid_batches_is_no_torn_write() -> None:
    """A batch is appended after the flush of those before it: the recovery point is not needed."""
    disk = written(closed=False)
    flip(disk, LOG, positions(disk)[4][0] + 30)
    # What a download left stays too: seed 6000.
    disk.write_file_atomically(
        f"{METADATA_LOG}/{snapshot_name(OffsetAndEpoch(20, 1))}.part", b"half"
    )
    assert_refused(disk, r"at byte \d+ \(offset 8\): .* 5 valid batches up to offset 20 follow")


def test_a_torn_tail_of_an_unclean_stop_is_cut_off() -> None:
    """The last batch may not have been flushed."""
    for keep in range(80):
        disk = written(closed=False)
        position, size = positions(disk)[-1]
        disk.open(LOG).truncate(position + min(keep, size - 1))
        log = open_log(disk)
        assert log.end_offset == 18
        append(log, 1)
        assert [batch.base_offset for batch in log.read(16)] == [16, 18]
    disk = written(closed=False)
    flip(disk, LOG, positions(disk)[-1][0] + 70)
    assert open_log(disk).end_offset == 18


def test_a_log_that_ends_below_its_recovery_point_is_refused() -> None:
    """A lost tail is damage, even when it ends between two batches."""
    for batches in (0, 3, 9):
        disk = written(closed=True)
        disk.open(LOG).truncate(positions(disk)[batches][0])
        assert_refused(
            disk, f"the log ends at offset {2 * batches}, but everything below offset 20"
        )


def test_a_segment_that_is_missing_is_noticed() -> None:
    """Also when no recovery point is known."""
    disk = SimulatedDisk()
    log = open_log(disk)
    for _ in range(3):
        append(log, 2)
        log.log.roll(0)
    append(log, 1)
    log.close(is_to_be_flushed=True)
    disk.remove(_RECOVERY_POINT_PATH)
    disk.remove(f"{METADATA_LOG}/{4:020d}.log")
    assert_refused(disk, "offsets 4 to 7 are missing")


def test_the_recovery_point_is_stored_by_a_close_and_a_start() -> None:
    """After a crash the next start stores where the recovered log ends."""
    disk = written(closed=True)
    assert read_recovery_point(disk) == 20
    log = open_log(disk)
    append(log, 1)
    disk.crash()
    assert read_recovery_point(disk) == 20
    log = open_log(disk)
    assert read_recovery_point(disk) == 22
    disk.write_file_atomically(_RECOVERY_POINT_PATH, b"damaged")
    assert read_recovery_point(disk) == 0
    log.close(is_to_be_flushed=True)
    assert read_recovery_point(disk) == 22


def test_the_recovery_point_is_stored_by_a_flush_once_a_minute() -> None:
    """Or after many records."""
    disk = SimulatedDisk()
    log = open_log(disk)
    append(log, 1, flushed=False)
    flush(log, RECOVERY_POINT_INTERVAL_MS - 1)
    assert read_recovery_point(disk) == 0
    append(log, 1, flushed=False)
    flush(log, RECOVERY_POINT_INTERVAL_MS)
    assert read_recovery_point(disk) == 4
    records = [(0, None, b"", ())] * RECOVERY_POINT_INTERVAL_RECORDS
    log.append(encode_batch(records, base_offset=4, leader_epoch=1), epoch=1, now_ms=0)
    flush(log, RECOVERY_POINT_INTERVAL_MS)
    assert read_recovery_point(disk) == 4 + RECOVERY_POINT_INTERVAL_RECORDS
    disk.crash()
    assert open_log(disk).end_offset == 4 + RECOVERY_POINT_INTERVAL_RECORDS


@pytest.mark.parametrize("at", [0, 14, 30, 75, -5])
def test_a_damaged_newest_snapshot_leaves_the_older_one_and_the_log(at: int) -> None:
    """It is neither used nor removed."""
    disk = written(closed=True)
    put_snapshot(disk, 8)
    path = put_snapshot(disk, 30, epoch=2)
    flip(disk, path, at % disk.size(path))
    log = open_log(disk)
    assert log.snapshots == [OffsetAndEpoch(8, 1)]
    assert (log.start_offset, log.end_offset) == (0, 20)
    found = log.checked_snapshot
    assert found is not None
    assert found[0].offset == 8
    assert disk.exists(path)
    log.update_high_watermark(20)
    log.clean(now_ms=1, max_bytes=1, max_age_ms=0)
    assert log.snapshots == [OffsetAndEpoch(8, 1)]


def test_a_snapshot_without_its_end_is_not_used() -> None:
    """Wherever it was cut."""
    disk = written(closed=True)
    path = put_snapshot(disk, 10)
    size = disk.size(path)
    for end in range(0, size, 7):
        disk.open(path).truncate(end)
        assert open_log(disk).snapshots == []
        put_snapshot(disk, 10)


def test_a_snapshot_of_another_epoch_than_its_name_is_not_used() -> None:
    """Neither by its batches nor by the log's epoch at its end."""
    disk = written(closed=True)
    put_snapshot(disk, 8)
    put_snapshot(disk, 10, leader_epoch=3)
    put_snapshot(disk, 12, epoch=4)
    log = open_log(disk)
    assert log.snapshots == [OffsetAndEpoch(8, 1)]
    assert log.end_offset == 20


def test_a_newer_snapshot_replaces_the_log_that_ends_before_it() -> None:
    """Kafka's followers leave that when they stop between a snapshot and the truncation."""
    disk = written(closed=True)
    put_snapshot(disk, 30, epoch=2)
    log = open_log(disk)
    assert (log.start_offset, log.end_offset, log.epoch_at_end()) == (30, 30, 2)
    disk.crash()
    log = open_log(disk)
    assert (log.start_offset, log.end_offset) == (30, 30)
    assert read_recovery_point(disk) == 30


def test_a_snapshot_of_an_older_epoch_does_not_replace_the_log() -> None:
    """The log ends before it in a newer epoch: one of them is wrong."""
    disk = SimulatedDisk()
    append(open_log(disk), 3, epoch=5)
    put_snapshot(disk, 30, epoch=4)
    assert_refused(disk, "ends at offset 6 in epoch 5, below snapshot .* of an older epoch")


def test_records_above_a_snapshot_are_not_given_up_for_it() -> None:
    """The log is damaged below the snapshot and has acknowledged records above it."""
    disk = written(closed=False)
    put_snapshot(disk, 14)
    flip(disk, LOG, positions(disk)[3][0] + 70)
    assert_refused(disk, "damaged at byte .* 6 valid batches up to offset 20 follow")
    disk = written(closed=True)
    put_snapshot(disk, 14)
    disk.open(LOG).truncate(positions(disk)[3][0])
    assert_refused(disk, "the log ends at offset 6, but everything below offset 20 was flushed")


def test_a_log_of_kafka_has_no_recovery_point() -> None:
    """The start stores one."""
    disk = written(closed=True)
    disk.remove(_RECOVERY_POINT_PATH)
    assert open_log(disk).end_offset == 20
    assert read_recovery_point(disk) == 20
