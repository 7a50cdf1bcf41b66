"""The directory as remote storage: names, bytes, damage and the marker of its cluster."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ottla.errors import ConfigError
from ottla.server.system.files import RealDirectory
from ottla.storage.remote.managers.directory import MARKER, ROOT, DirectoryStorage
from ottla.storage.remote.segment import RemoteSegment, SegmentState
from ottla.storage.remote.storage_manager import (
    IndexKind,
    LocalFile,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    SegmentFiles,
)
from ottla.testing.disk import SimulatedDisk
from ottla.types import Uuid

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.storage.directory import Directory

EPOCHS = b"0\n1\n0 0\n"
NAME = "t-3-AQEBAQEBAQEBAQEBAQEBAQ/00000000000000001026-AgICAgICAgICAgICAgICAg"
SUFFIXES = (".index", ".leader_epoch_checkpoint", ".log", ".snapshot", ".timeindex", ".txnindex")
LOG = bytes(range(256)) * 4096


def segment_of(size_bytes: int = len(LOG), number: int = 2) -> RemoteSegment:
    """Return a segment that is to be copied."""
    return RemoteSegment(
        topic_id=Uuid(b"\1" * 16),
        topic="t",
        partition=3,
        segment_id=Uuid(bytes([number]) * 16),
        start_offset=1026,
        end_offset=2051,
        leader_epochs=((0, 1026),),
        size_bytes=size_bytes,
        max_timestamp_ms=5,
        broker_id=1,
        event_timestamp_ms=6,
        state=SegmentState.COPY_SEGMENT_STARTED,
    )


def files_of(disk: Directory, *, aborts: bytes | None = b"x" * 34) -> SegmentFiles:
    """Return the files of a segment on a disk; the log has more bytes than are to be copied."""

    def file(name: str, data: bytes, size: int | None = None) -> LocalFile:
        disk.write_file_atomically(name, data)
        return LocalFile(disk, name, len(data) if size is None else size)

    return SegmentFiles(
        log=file("a.log", LOG + b"tail", len(LOG)),
        offset_index=file("a.index", b"o" * 16),
        time_index=file("a.timeindex", b"t" * 24),
        transaction_index=None if aborts is None else file("a.txnindex", aborts),
        producer_snapshot=file("b.snapshot", b"snapshot"),
        leader_epochs=EPOCHS,
    )


@pytest.fixture(name="disk")
def _disk() -> SimulatedDisk:
    return SimulatedDisk()


def storage_of(disk: SimulatedDisk, **settings: str) -> DirectoryStorage:
    """Return a configured manager."""
    storage = DirectoryStorage(lambda _path: disk)
    storage.configure({"dir": "/tier", "broker.id": "1", **settings})
    return storage


def test_names_and_bytes_are_those_of_kafkas_local_tiered_storage(disk: SimulatedDisk) -> None:
    """All six files lie in the partition's directory with their bytes, also after a crash."""
    storage = storage_of(disk)
    storage.copy_segment(segment_of(), files_of(SimulatedDisk()))
    assert disk.files() == [f"{ROOT}/{NAME}{suffix}" for suffix in SUFFIXES]
    assert disk.content(f"{ROOT}/{NAME}.log") == LOG
    assert disk.content(f"{ROOT}/{NAME}.leader_epoch_checkpoint") == EPOCHS
    with storage.read_index(segment_of(), IndexKind.TIMESTAMP) as stream:
        assert stream.read() == b"t" * 24
    disk.crash()
    assert disk.content(f"{ROOT}/{NAME}.log") == LOG


def test_ranges_are_read_as_streams(disk: SimulatedDisk) -> None:
    """The end of a range belongs to it; a range beyond the end stops there."""
    storage = storage_of(disk)
    storage.copy_segment(segment_of(), files_of(SimulatedDisk()))
    with storage.read_segment(segment_of(), 10, 19) as stream:
        assert (stream.read(4), stream.read()) == (LOG[10:14], LOG[14:20])
    with storage.read_segment(segment_of(), 1000) as stream:
        assert stream.read() == LOG[1000:]
    with storage.read_segment(segment_of(), len(LOG) - 3, len(LOG) + 5) as stream:
        assert (stream.read(), stream.read(1)) == (LOG[-3:], b"")


def test_what_is_not_there_is_named(disk: SimulatedDisk) -> None:
    """A missing segment and a missing transaction index are told from other errors."""
    storage = storage_of(disk)
    storage.copy_segment(segment_of(), files_of(SimulatedDisk(), aborts=None))
    with pytest.raises(RemoteResourceNotFoundError, match=r"no .*t-3-.*\.txnindex"):
        storage.read_index(segment_of(), IndexKind.TRANSACTION)
    with pytest.raises(RemoteResourceNotFoundError):
        storage.read_segment(segment_of(number=3), 0)


def test_a_log_of_another_length_is_not_served(disk: SimulatedDisk) -> None:
    """A cut file is an error, not the end of the data."""
    storage = storage_of(disk)
    storage.copy_segment(segment_of(), files_of(SimulatedDisk()))
    with pytest.raises(RemoteStorageError, match="has 1048576 bytes, and had 1048577"):
        storage.read_segment(replace(segment_of(), size_bytes=len(LOG) + 1), 0)


@pytest.mark.parametrize("suffix", [".log", ".timeindex", ".snapshot"])
def test_a_failed_copy_leaves_nothing(disk: SimulatedDisk, suffix: str) -> None:
    """The disk is full in the middle: no file stays, and the segment can be copied later."""
    storage = storage_of(disk)
    disk.fail(lambda call: call.path.endswith(suffix) and call.kind == "append", errno.ENOSPC)
    with pytest.raises(RemoteStorageError, match="not copied"):
        storage.copy_segment(segment_of(), files_of(SimulatedDisk()))
    assert disk.files() == []
    disk.heal()
    storage.copy_segment(segment_of(), files_of(SimulatedDisk()))


def test_a_shorter_local_file_is_not_copied(disk: SimulatedDisk) -> None:
    """The local log lost bytes in the meantime: the copy fails and leaves nothing."""
    files = files_of(SimulatedDisk())
    short = files._replace(log=files.log._replace(size=len(LOG) + 100))
    with pytest.raises(RemoteStorageError, match="less than"):
        storage_of(disk).copy_segment(segment_of(), short)
    assert disk.files() == []


def test_deletion_is_idempotent_and_leaves_the_others(disk: SimulatedDisk) -> None:
    """A segment is deleted twice; the emptied directory stays, and so does another segment."""
    storage = storage_of(disk)
    for number in (2, 3):
        storage.copy_segment(segment_of(number=number), files_of(SimulatedDisk()))
    with pytest.raises(RemoteStorageError, match="exists"):
        storage.copy_segment(segment_of(number=2), files_of(SimulatedDisk()))
    storage.delete_segment(segment_of(number=2))
    storage.delete_segment(segment_of(number=2))
    assert len(disk.files()) == len(SUFFIXES)
    storage.delete_segment(segment_of(number=3))
    assert disk.is_directory(f"{ROOT}/{NAME.partition('/')[0]}")


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    """A segment behind a link has to have the length that it had; a deletion leaves the target."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"not of the tier")
    storage = DirectoryStorage(lambda path: RealDirectory(path, create=True))
    storage.configure({"dir": str(tmp_path / "tier"), "broker.id": "1"})
    storage.copy_segment(segment_of(), files_of(SimulatedDisk()))
    log = tmp_path / "tier" / ROOT / f"{NAME}.log"
    log.unlink()
    log.symlink_to(secret)
    with pytest.raises(RemoteStorageError, match="has 15 bytes"):
        storage.read_segment(segment_of(), 0)
    storage.delete_segment(segment_of())
    assert not log.is_symlink()
    assert secret.read_bytes() == b"not of the tier"


def test_two_clusters_do_not_share_a_directory(disk: SimulatedDisk) -> None:
    """The marker lies outside of Kafka's directory and names the owner."""
    storage_of(disk, **{"cluster.id": "one"})
    storage_of(disk, **{"cluster.id": "one"})
    assert disk.files() == [MARKER]
    with pytest.raises(ConfigError, match="remote storage of cluster one, not of two"):
        storage_of(disk, **{"cluster.id": "two"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [({}, "not set: dir"), ({"dir": "/tier", "transferer.class": "x"}, "transferer.class")],
)
def test_settings_are_checked(disk: SimulatedDisk, settings: dict[str, str], message: str) -> None:
    """The directory is required; what lets Kafka's tests fail is refused."""
    with pytest.raises(ConfigError, match=message):
        DirectoryStorage(lambda _path: disk).configure(settings)
