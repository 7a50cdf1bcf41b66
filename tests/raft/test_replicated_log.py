"""The metadata log over a disk: recovery, snapshots, retention."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.raft.log_check import (
    _TRUNCATION_PATH,
    begin_truncation,
    find_snapshots,
    finish_truncation,
)
from ottla.raft.replicated_log import ReplicatedLog
from ottla.raft.snapshot import encode_snapshot, snapshot_name
from ottla.records.builder import encode_batch
from ottla.storage.layout import METADATA_LOG, segment_file_name
from ottla.testing.disk import SimulatedDisk
from ottla.types import OffsetAndEpoch


def _open(disk: SimulatedDisk) -> ReplicatedLog:
    return ReplicatedLog.open(disk, now_ms=0)


def _append_one(log: ReplicatedLog, size: int = 10) -> None:
    data = encode_batch([(0, None, b"v" * size, ())], base_offset=log.end_offset, leader_epoch=1)
    log.append(data, epoch=1, now_ms=0)


def _append(log: ReplicatedLog, count: int = 1, size: int = 10) -> None:
    """Append batches as a leader does: each is flushed before the next one."""
    for _ in range(count):
        _append_one(log, size)
        _flush(log)


def _flush(log: ReplicatedLog) -> None:
    job = log.start_flush(0)
    assert job is not None
    job.run()
    log.flush_completed(job)
    log.update_high_watermark(log.end_offset)


def _snapshot(log: ReplicatedLog, offset: int, timestamp: int = 0) -> OffsetAndEpoch:
    snapshot_id = OffsetAndEpoch(offset, 1)
    data = encode_snapshot([b"x"], now_ms=0, leader_epoch=1, last_contained_log_timestamp=timestamp)
    write, written = log.snapshot_writer(snapshot_id, [data])
    write()
    written()
    return snapshot_id


def test_what_was_flushed_survives_a_crash() -> None:
    """Records below the flushed end are there after a power cut, torn ones are cut off."""
    for seed in range(10):
        disk = SimulatedDisk(seed)
        log = _open(disk)
        _append(log, 5)
        _append_one(log)
        disk.crash()
        again = _open(disk)
        assert 5 <= again.end_offset <= 6
        assert [batch.base_offset for batch in again.read(0)][:5] == [0, 1, 2, 3, 4]


def test_a_snapshot_beyond_the_log_is_where_it_begins() -> None:
    """A log that ends before its newest snapshot restarts after it."""
    disk = SimulatedDisk()
    disk.make(METADATA_LOG)
    disk.write_file_atomically(
        f"{METADATA_LOG}/{snapshot_name(OffsetAndEpoch(100, 3))}",
        encode_snapshot([], now_ms=0, leader_epoch=3),
    )
    log = _open(disk)
    assert (log.end_offset, log.epoch_at_end()) == (100, 3)


def test_a_log_that_begins_at_a_snapshot_keeps_none_before_it() -> None:
    """A replica that has just this snapshot is not told to fetch it again (seed 5973)."""
    disk = SimulatedDisk()
    disk.make(METADATA_LOG)
    ids = [OffsetAndEpoch(0, 0), OffsetAndEpoch(50, 1), OffsetAndEpoch(100, 3)]
    for snapshot_id in ids:
        data = encode_snapshot([], now_ms=0, leader_epoch=snapshot_id.leader_epoch)
        disk.write_file_atomically(f"{METADATA_LOG}/{snapshot_name(snapshot_id)}", data)
    log = _open(disk)
    assert log.snapshots == find_snapshots(disk) == ids[-1:]
    assert not log.needs_snapshot(100, 3)
    assert log.divergence(100, 3) is None


def test_half_written_snapshots_are_removed() -> None:
    """Incomplete snapshot files are removed at the next start."""
    disk = SimulatedDisk()
    disk.make(METADATA_LOG)
    name = snapshot_name(OffsetAndEpoch(1, 1))
    disk.write_file_atomically(f"{METADATA_LOG}/{name}.part", b"half")
    assert _open(disk).snapshots == []
    assert f"{name}.part" not in disk.list(METADATA_LOG)


def test_an_older_snapshot_serves_while_the_log_reaches_it() -> None:
    """A damaged newest snapshot is passed over; `check_log` refuses where the log is gone."""
    disk = SimulatedDisk()
    log = _open(disk)
    _append(log, 10)
    older = _snapshot(log, 4)
    newer = _snapshot(log, 8)
    disk.write_file_atomically(f"{METADATA_LOG}/{snapshot_name(newer)}", b"\0" * 100)
    found = _open(disk).checked_snapshot
    assert found is not None
    assert found[0] == older


def test_an_own_snapshot_below_a_loaded_one_is_removed() -> None:
    """A standby may load a newer snapshot while a worker writes its own: it serves no one."""
    disk = SimulatedDisk(1)
    log = _open(disk)
    _append(log, 3)
    old, loaded = OffsetAndEpoch(2, 1), OffsetAndEpoch(9, 1)
    write, written = log.snapshot_writer(old, [b"old"])
    disk.write_file_atomically(f"{METADATA_LOG}/{snapshot_name(loaded)}", b"loaded")
    log.restart_at(loaded, now_ms=0)
    write()
    written()
    assert log.snapshots == [loaded]
    assert find_snapshots(disk) == [loaded]


def test_a_log_without_its_beginning_is_refused() -> None:
    """Where the snapshot is gone that held what was cut off, an older one does not do."""
    disk = SimulatedDisk()
    log = _open(disk)
    _append(log, 10)
    older, newer = _snapshot(log, 4), _snapshot(log, 10)
    log.delete_before(10, now_ms=0)
    for gone in (newer, older):
        disk.remove(f"{METADATA_LOG}/{snapshot_name(gone)}")
        with pytest.raises(KafkaError, match="begins at offset 10"):
            _open(disk)


def test_retention_drops_the_oldest_snapshots_with_their_log() -> None:
    """By size and by age, but the newest snapshot always stays."""
    disk = SimulatedDisk()
    log = _open(disk)
    _append(log, 20, size=1000)
    for offset in (5, 10, 15):
        _snapshot(log, offset, timestamp=offset)
    assert log.clean(now_ms=100, max_bytes=1 << 30, max_age_ms=1000) == 0
    assert log.clean(now_ms=100, max_bytes=-1, max_age_ms=93) == 1
    assert [found.offset for found in log.snapshots] == [10, 15]
    assert log.start_offset == 10
    assert log.clean(now_ms=100, max_bytes=1, max_age_ms=-1) == 1
    assert [found.offset for found in log.snapshots] == [15]
    assert log.start_offset == 15
    assert [batch.base_offset for batch in log.read(15)] == list(range(15, 20))


@pytest.mark.parametrize("position", [8, 40, 62])
def test_a_damaged_oldest_snapshot_is_dropped_when_the_next_one_is_too_old(position: int) -> None:
    """Its own age cannot be read; that of the next one is a bound of it."""
    disk = SimulatedDisk()
    log = _open(disk)
    _append(log, 20)
    for offset in (5, 10, 15):
        _snapshot(log, offset, timestamp=offset)
    disk.flip_bit(f"{METADATA_LOG}/{snapshot_name(log.snapshots[0])}", position, 6)
    assert log.clean(now_ms=100, max_bytes=-1, max_age_ms=92) == 0
    assert log.clean(now_ms=100, max_bytes=-1, max_age_ms=89) == 2
    assert [found.offset for found in log.snapshots] == [15]


def test_31_the_log_is_not_cut_below_its_high_watermark() -> None:
    """KAFKA-12460: what is committed stays, whoever asks; the node ends instead."""
    log = _open(SimulatedDisk())
    _append(log, 5)
    log.update_high_watermark(4)
    with pytest.raises(KafkaError, match="below the current high watermark 4") as caught:
        log.truncate_to(3, now_ms=0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.truncate_to(4, now_ms=0)
    assert log.end_offset == 4


def test_a_truncation_over_segments_survives_a_power_cut() -> None:
    """Some of the removed segments may be back; seed 50 of the quorum had such a gap."""
    for seed in range(60):
        disk = SimulatedDisk(seed)
        log = ReplicatedLog.open(disk, now_ms=0, segment_bytes=300)
        for _ in range(20):
            _append_one(log)
            job = log.start_flush(0)
            assert job is not None
            job.run()
            log.flush_completed(job)
        assert len(log.log.segments) > 3
        log.truncate_to(1 + seed % 10, now_ms=0)
        if seed % 3 == 0:
            _flush(log)
            _append(log, 15)
            assert not disk.exists(_TRUNCATION_PATH)
        elif seed % 3 == 1:
            job = log.start_flush(0)
            assert job is not None
            job.run()
        disk.crash()
        again = ReplicatedLog.open(disk, now_ms=0, segment_bytes=300)
        offsets = [batch.base_offset for batch in again.read(0)]
        assert offsets == list(range(again.end_offset))
        assert again.end_offset >= 1 + seed % 10 + (15 if seed % 3 == 0 else 0)
        assert not disk.exists(_TRUNCATION_PATH)


def test_a_truncation_that_is_finished_removes_files_of_segments_alone() -> None:
    """Other files are not the log's, even if their names begin with a number."""
    disk = SimulatedDisk()
    disk.make(METADATA_LOG)
    begin_truncation(disk, 4)
    names = [segment_file_name(4, ".log"), "5.log", "\N{SUPERSCRIPT THREE}.log"]
    for name in [*names, segment_file_name(5, ".log"), segment_file_name(5, ".index")]:
        disk.write_file_atomically(f"{METADATA_LOG}/{name}", b"")
    finish_truncation(disk)
    assert sorted(disk.list(METADATA_LOG)) == sorted(names)
