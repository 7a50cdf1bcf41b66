"""Directories and files of others in a log directory: nothing but a node's own is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.storage.directories.partition_dir_names import (
    future_partition_of,
    is_deleted_log,
    partition_of,
)
from ottla.storage.log.config import LogConfig
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition, Uuid
from tests.storage.logs import NOW_MS, TOPIC_ID, close, new_log, put
from tests.storage.sets import drain, make, open_set

if TYPE_CHECKING:
    from ottla.storage.directories.loader import FoundLog
    from ottla.storage.log_set.log_set import LogSet

LOG = "00000000000000000000.log"
OTHERS = {
    "backup-20261101": {"full.tar": b"x" * 1000},
    ".Trash-1000": {"files/doc.txt": b"d", "info/doc.trashinfo": b"i"},
    "copy of t-0": {LOG: b"", "notes.txt": b"n"},
    "old-1": {"sub/deep/file": b"f"},
    "..-0": {LOG: b""},
    "t-007": {LOG: b"x"},
    "please-delete": {"letter.txt": b"l"},
    "backup-1.of-monday-delete": {"full.tar": b"x"},
    "draft-1.second-future": {"letter.txt": b"l"},
    "dump-3": {LOG: b"", "dump.sql": b"s"},
}
LATER_MS = NOW_MS + 10_000_000


def write(disk: SimulatedDisk, path: str, data: bytes) -> None:
    """Write a file, with the directories above it."""
    parents = path.split("/")[:-1]
    for depth in range(len(parents)):
        disk.make("/".join(parents[: depth + 1]))
    disk.write_file_atomically(path, data)


def write_all(disk: SimulatedDisk) -> set[str]:
    """Write the files of others; return their paths."""
    files = {
        f"{name}/{file}": data for name, files in OTHERS.items() for file, data in files.items()
    }
    for path, data in files.items():
        write(disk, path, data)
    return set(files)


def let_time_pass(logs: LogSet) -> None:
    """Run all jobs, and remove what is due in hours."""
    drain(logs)
    for job in logs.removals.take_due(LATER_MS):
        job.run()
        job.done(None)


def is_unknown(found: FoundLog) -> bool:
    """Whether the metadata know no such partition: they have t-0 alone."""
    return found.topic_id != TOPIC_ID or found.topic_partition != ("t", 0)


def test_directories_of_others_are_left_alone_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever their names look like; a start is repeated."""
    disk = SimulatedDisk()
    files = write_all(disk)
    for _ in range(2):
        caplog.clear()
        logs = open_set(disk)
        let_time_pass(logs)
        logs.shutdown()
        (line,) = [one.getMessage() for one in caplog.records]
        for name in ("backup-20261101", ".Trash-1000", "copy of t-0", "old-1", "dump-3"):
            assert name in line
    assert files <= set(disk.files())
    assert not logs.table.logs


@pytest.mark.parametrize("name", ["t-20261101", "copy-of-t-0", "t-1"])
def test_a_copy_of_a_log_is_set_aside_with_all_its_bytes(name: str) -> None:
    """It has the other's topic id; it is not even opened, which could cut its end."""
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log, 3)
    close(log)
    for path in [one for one in disk.files() if one.startswith("t-0/")]:
        write(disk, path.replace("t-0/", f"{name}/"), disk.read_file(path))
    torn = disk.read_file(f"t-0/{LOG}") + b"torn"
    write(disk, f"{name}/{LOG}", torn)
    logs = open_set(disk, is_stray=is_unknown)
    let_time_pass(logs)
    assert list(logs.table.logs) == [("t", 0)]
    (stray,) = [one for one in disk.list() if one.endswith("-stray")]
    assert stray.startswith(name)
    assert disk.read_file(f"{stray}/{LOG}") == torn


@pytest.mark.parametrize("metadata", [None, b"broken"])
def test_records_without_a_topic_id_are_set_aside(metadata: bytes | None) -> None:
    """Also bytes that are no batch; Kafka sets such logs aside, too."""
    disk = SimulatedDisk()
    write(disk, f"orders-0/{LOG}", b"garbage that is no batch")
    if metadata is not None:
        write(disk, "orders-0/partition.metadata", metadata)
    logs = open_set(disk)
    let_time_pass(logs)
    (stray,) = [one for one in disk.list() if one.endswith("-stray")]
    assert disk.read_file(f"{stray}/{LOG}") == b"garbage that is no batch"


def test_a_topic_with_the_name_of_such_a_directory_gets_one_of_its_own() -> None:
    """When it is deleted, the files of others are not deleted with it."""
    disk = SimulatedDisk()
    files = write_all(disk)
    logs = open_set(disk)
    names = [TopicPartition("backup", 20261101), TopicPartition("old", 1)]
    make(logs, names[0])
    for job in logs.creation_jobs([(names[1], Uuid(b"fedcba9876543210"))], now_ms=NOW_MS):
        job.run()
        job.done(None)
    assert list(logs.table.logs) == names
    for name in names:
        logs.delete(name, now_ms=NOW_MS)
    let_time_pass(logs)
    kept = {path.partition("/")[2] for path in disk.files() if "-stray/" in path}
    assert kept == {"full.tar", "sub/deep/file"}
    assert len(files & set(disk.files())) == len(files) - 2


def test_files_of_others_next_to_logs_stay() -> None:
    """In the log directory and in a partition's: a suffix does not make a file a node's own."""
    disk = SimulatedDisk()
    log = new_log(disk, config=LogConfig())
    put(log, 3)
    close(log)
    own = ["t-0/00000000000000000009.log.cleaned", "t-0/leader-epoch-checkpoint.tmp"]
    own += ["recovery-point-offset-checkpoint.7.tmp", "meta.properties.tmp"]
    others = ["t-0/notes.deleted", "t-0/report.tmp", "t-0/x.swap", "t-0/1.log", "full.tar.tmp"]
    others += ["t-0/7.snapshot", "t-0/2026.index"]
    for path in own + others:
        write(disk, path, b"")
    logs = open_set(disk)
    assert logs.table.logs[TopicPartition("t", 0)].log_end_offset == 3
    let_time_pass(logs)
    logs.shutdown()
    assert set(others) <= set(disk.files())
    assert not set(own) & set(disk.files())


def test_names_of_directories() -> None:
    """Only what a node itself writes is read as such."""
    digits = "0123456789abcdef" * 2
    assert partition_of("a-b-0") == ("a-b", 0)
    for name in ("a-00", "a-007", "a-²", "a-٣", "a-2147483648", "a", "-1", f"a-0.{digits}-stray"):
        assert partition_of(name) is None, name
    assert is_deleted_log(f"a-0.{digits}-delete")
    assert future_partition_of(f"a.b-0.{digits}-future") == ("a.b", 0)
    for name in (
        "a-delete",
        "a-0-delete",
        "a-0.x-delete",
        f"a-x.{digits}-delete",
        f"{digits}-delete",
    ):
        assert not is_deleted_log(name), name
        assert future_partition_of(name.replace("-delete", "-future")) is None, name
