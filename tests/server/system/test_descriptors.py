"""Descriptors of logs on the real disk: how many are held, and what happens when there are none."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.errors import CorruptMessage
from ottla.server.system.files import RealDirectory, RealFile
from ottla.storage.log.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_set.retention_check import RetentionCheck
from ottla.types import FileSlice
from tests.server.system.descriptors import held
from tests.storage.logs import NOW_MS, SMALL, TOPIC_ID, content, flush, new_log, put
from tests.storage.sets import A, drain, finish, make, open_set

if TYPE_CHECKING:
    from ottla.storage.log_set.log_set import LogSet

ROLLS = 3


def rolled(tmp_path: Path) -> PartitionLog:
    """Return a log of several segments, of which nothing is durable."""
    log = PartitionLog.open(
        RealDirectory(str(tmp_path)), "t-0", config=SMALL, now_ms=NOW_MS, topic_id=TOPIC_ID
    )
    while len(log.segments) <= ROLLS:
        put(log)
    return log


def test_recovery_holds_the_files_of_few_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of thousands of segments that are not durable may not use up all descriptors."""
    rolled(tmp_path).release()
    counts = []
    first_use = RealFile._open

    def counted(file: RealFile) -> int:
        descriptor = first_use(file)
        counts.append(len(held(tmp_path)))
        return descriptor

    monkeypatch.setattr(RealFile, "_open", counted)
    for suffix in (".log", ".index"):  # indexes that are missing are rebuilt from all segments
        PartitionLog.open(
            RealDirectory(str(tmp_path)), "t-0", config=SMALL, now_ms=NOW_MS, clean=suffix != ".log"
        )
        assert held(tmp_path) == []
        for index in (tmp_path / "t-0").glob("*.index"):
            index.unlink()
    assert max(counts) <= 2


def test_a_log_that_cannot_be_loaded_holds_none(tmp_path: Path) -> None:
    """Each damaged log of a start would keep some until the node stops."""
    log = rolled(tmp_path)
    log.release()
    path = tmp_path / log.segments.active.path(".log")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptMessage):
        PartitionLog.open(
            RealDirectory(str(tmp_path)),
            "t-0",
            config=SMALL,
            now_ms=NOW_MS,
            recovery_point=log.log_end_offset,
        )
    assert held(tmp_path) == []


def test_a_rolled_segment_holds_none_once_it_is_durable(tmp_path: Path) -> None:
    """Only the active segment's file stays open; old ones are opened when somebody reads them."""
    log = rolled(tmp_path)
    assert len(held(tmp_path)) == ROLLS + 1
    flush(log)
    assert held(tmp_path) == [Path(log.segments.active.path(".log")).name]
    assert content(log.reads.read(0, 100).records)
    assert len(held(tmp_path)) == 2
    log.release()


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_flush_that_finds_none_lets_go_of_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Files that stayed pinned would stay open after they are removed; the next flush syncs all."""
    log = rolled(tmp_path)
    synced: list[str] = []
    pin, sync = RealFile.pin, RealFile.sync

    def pin_or_not(file: RealFile) -> None:
        if file._path.endswith(suffix):
            raise OSError(errno.EMFILE, "Too many open files")
        pin(file)

    def noted(file: RealFile) -> None:
        synced.append(Path(file._path).name)
        sync(file)

    monkeypatch.setattr(RealFile, "pin", pin_or_not)
    monkeypatch.setattr(RealFile, "sync", noted)
    assert log.flushes.start(NOW_MS) is None
    monkeypatch.setattr(RealFile, "pin", pin)
    log.release()
    assert held(tmp_path) == []
    flush(log)
    names = {Path(one.path(kind)).name for one in log.segments for kind in (".log", ".index")}
    assert names - {Path(log.segments.active.path(".index")).name} <= set(synced)
    assert log.recovery_point == log.log_end_offset
    log.release()


def test_what_is_durable_is_not_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try needs no more descriptors than the one that found none."""
    log = rolled(tmp_path)
    flush(log)
    old = {Path(one.path(".log")).name for one in list(log.segments)[:-1]}
    put(log)

    def none_left(_file: RealFile) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(RealFile, "pin", none_left)
        assert log.flushes.start(NOW_MS) is None
    synced: list[str] = []
    monkeypatch.setattr(RealFile, "sync", lambda file: synced.append(Path(file._path).name))
    flush(log)
    assert Path(log.segments.active.path(".log")).name in synced
    assert not old & set(synced)
    log.release()


def test_what_was_forgotten_is_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that was let go of before its flush came is still made durable by it."""
    log = rolled(tmp_path)
    for _ in range(2):
        log.release_idle()
    assert not log.segments[0].offset_index.is_loaded
    synced: list[str] = []
    monkeypatch.setattr(RealFile, "sync", lambda file: synced.append(Path(file._path).name))
    flush(log)
    assert Path(log.segments[0].path(".index")).name in synced
    log.release()


def test_the_first_segment_rolls_at_a_time_of_its_own() -> None:
    """Logs that were made together must not all roll together: it has its segment.jitter.ms too."""
    config = SMALL.__class__(segment_ms=10_000, segment_jitter_ms=9_000)
    log = new_log(config=config)
    assert 0 < log.segments.active.roll_jitter_ms < 9_000
    put(log)
    put(log, timestamp=NOW_MS + 10_000 - log.segments.active.roll_jitter_ms + 1)
    assert len(log.segments) == 2


@pytest.mark.parametrize("clean", [True, False])
def test_a_load_keeps_none(tmp_path: Path, *, clean: bool) -> None:
    """Ten thousand logs that were recovered must not hold a descriptor each."""
    log = rolled(tmp_path)
    flush(log)
    log.release()
    again = PartitionLog.open(
        RealDirectory(str(tmp_path)), "t-0", config=SMALL, now_ms=NOW_MS, clean=clean
    )
    assert again.log_end_offset == log.log_end_offset
    assert held(tmp_path) == []


def one_log(tmp_path: Path, config: LogConfig) -> tuple[LogSet, PartitionLog]:
    """Return a set on the real disk, and its one log, of ten batches that may be deleted."""
    logs = open_set(RealDirectory(str(tmp_path)), config=config)
    log = make(logs)
    for _ in range(10):
        put(log)
    log.update_high_watermark(10)
    return logs, log


def held_but_lock(folder: Path) -> list[str]:
    return [name for name in held(folder) if name != ".lock"]


def test_segments_that_retention_took_hold_none_once_they_are_removed(tmp_path: Path) -> None:
    """A reader had one open again: its descriptor goes with the file's name, on the loop."""
    config = LogConfig(segment_bytes=400, retention_ms=1)
    logs, log = one_log(tmp_path, config)
    drain(logs)
    old = log.segments[0]
    RetentionCheck(logs).step(NOW_MS + 10)
    assert content(FileSlice(old.file, 0, 10))
    drain(logs)
    assert len(held_but_lock(tmp_path)) >= 1
    jobs = logs.removals.take_due(NOW_MS + 10 + config.file_delete_delay_ms)
    assert len(jobs) == 1
    finish(jobs)
    assert held_but_lock(tmp_path) == []
    assert not list(tmp_path.glob("*/*.deleted"))


def test_a_deleted_log_releases_segments_that_retention_took_before(tmp_path: Path) -> None:
    """No check visits them any more: they go with the partition's directory."""
    logs, _ = one_log(tmp_path, LogConfig(retention_ms=1))
    RetentionCheck(logs).step(NOW_MS + 10)
    drain(logs)
    assert held_but_lock(tmp_path)
    logs.delete(A, now_ms=NOW_MS + 20)
    assert held_but_lock(tmp_path) == []


def test_the_logs_of_a_directory_that_fails_let_go(tmp_path: Path) -> None:
    """They are served no more, and the other directories need the descriptors."""
    logs, _ = one_log(tmp_path, LogConfig())
    assert held_but_lock(tmp_path)
    logs.fail(logs.directories[0], OSError(errno.EIO, "gone"))
    assert held_but_lock(tmp_path) == []


def test_a_flush_job_gives_its_directory_back(tmp_path: Path) -> None:
    """Whatever became of the log meanwhile."""
    logs, log = one_log(tmp_path, LogConfig())
    jobs = logs.take_jobs(NOW_MS)
    before = len(held(tmp_path))
    finish(jobs)
    assert len(held(tmp_path)) < before
    put(log)
    jobs = logs.flushes.take_whole(log, NOW_MS)
    logs.delete(A, now_ms=NOW_MS)
    assert held_but_lock(tmp_path)
    finish(jobs)
    assert held_but_lock(tmp_path) == []
