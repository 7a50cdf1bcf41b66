"""Backups and restores: incremental, of a running node, of a moment, and what is refused."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from ottla.backup.backup import Backup, BackupResult
from ottla.backup.manifest import (
    MANIFESTS,
    MARKER,
    decode_manifest,
    encode_manifest,
    read_backups,
    read_manifest,
)
from ottla.backup.restore import RestoreRequest, RestoreResult, restore
from ottla.backup.store import DirectoryStore
from ottla.branches.fork_point import ForkPoint
from ottla.errors import CorruptMessage, LocalDiskError
from ottla.storage.layout import HIGH_WATERMARK_CHECKPOINT, METADATA_LOG
from ottla.types import TopicPartition
from tests.branches.crashes import Below, disk_at
from tests.storage.logs import NOW_MS, put
from tests.verification.damages import Served, find, sample, serve, start_log

if TYPE_CHECKING:
    from ottla.testing.disk import SimulatedDisk

FILES = sample()
NOW = ForkPoint()


@pytest.fixture
def disk() -> SimulatedDisk:
    """Return a disk with a stopped node in `source` and an empty `place`."""
    disk = disk_at(FILES, "source")
    disk.make("place")
    return disk


def place_of(disk: SimulatedDisk) -> DirectoryStore:
    return DirectoryStore(at(disk, "place"))


def back_up(disk: SimulatedDisk, now_ms: int = NOW_MS) -> BackupResult:
    return Backup(at(disk, "source"), place_of(disk), now_ms=now_ms).run()


def at(disk: SimulatedDisk, name: str) -> Any:
    return Below(disk, name)


def bring_back(disk: SimulatedDisk, target: str = "made", **more: Any) -> RestoreResult:
    request = RestoreRequest(target, NOW)._replace(**more)
    return restore(disk, place_of(disk), request, now_ms=NOW_MS)


def test_a_restored_directory_has_all(disk: SimulatedDisk) -> None:
    """Records, answers and metadata; nothing is to be repaired."""
    right = serve(at(disk, "source"))
    result = back_up(disk)
    assert result.partition_count == 3
    assert result.stored_bytes <= result.total_bytes
    bring_back(disk)
    assert find(at(disk, "made")) == []
    made = serve(at(disk, "made"))
    for name in ("a-0", "c-0", METADATA_LOG):
        assert made[name] == right[name]
    assert disk.list() == ["made", "place", "source"]


def test_a_second_backup_stores_what_is_new(disk: SimulatedDisk) -> None:
    """Sealed segments are known by length and time; both backups stay."""
    first = back_up(disk)
    assert back_up(disk, NOW_MS + 1).stored_bytes == 0
    source = at(disk, "source")
    log = start_log(source, "a-0")
    put(log, 5, epoch=2)
    end = log.log_end_offset
    log.release()
    text = disk.read_file(f"source/{HIGH_WATERMARK_CHECKPOINT}").decode()
    changed = "\n".join(f"a 0 {end}" if line[:2] == "a " else line for line in text.split("\n"))
    disk.write_file_atomically(f"source/{HIGH_WATERMARK_CHECKPOINT}", changed.encode())
    assert 0 < back_up(disk, NOW_MS + 2).stored_bytes < first.stored_bytes
    assert len(read_backups(place_of(disk))) == 3
    bring_back(disk, "old", backup_id=first.backup_id)
    bring_back(disk, "new")
    old, new = start_log(at(disk, "old"), "a-0"), start_log(at(disk, "new"), "a-0")
    assert (old.log_end_offset, new.log_end_offset) == (end - 5, end)


def test_the_high_watermark_is_the_end(disk: SimulatedDisk) -> None:
    """What lies above it is not part of the moment."""
    text = disk.read_file(f"source/{HIGH_WATERMARK_CHECKPOINT}").decode()
    changed = "\n".join("a 0 60" if line[:2] == "a " else line for line in text.split("\n"))
    disk.write_file_atomically(f"source/{HIGH_WATERMARK_CHECKPOINT}", changed.encode())
    back_up(disk)
    bring_back(disk)
    log = start_log(at(disk, "made"), "a-0")
    assert 58 <= log.log_end_offset <= 60


def test_a_node_without_high_watermarks(disk: SimulatedDisk) -> None:
    """It has just started: a backup would have no records."""
    disk.remove(f"source/{HIGH_WATERMARK_CHECKPOINT}")
    with pytest.raises(LocalDiskError, match="has not written replication-offset-checkpoint yet"):
        back_up(disk)
    assert disk.list("place") == []


def test_parts_and_earlier_points(disk: SimulatedDisk) -> None:
    """One topic, one partition, and an earlier time than the backup's."""
    right = serve(at(disk, "source"))["a-0"]
    assert isinstance(right, Served)
    back_up(disk)
    bring_back(disk, "topic", topics=frozenset({"a"}))
    assert "a-0" in disk.list("topic")
    assert "c-0" not in disk.list("topic")
    bring_back(disk, "partition", partitions=frozenset({TopicPartition("c", 0)}))
    assert "c-0" in disk.list("partition")
    assert "a-0" not in disk.list("partition")
    bring_back(disk, "earlier", point=ForkPoint(until_ms=NOW_MS + 30))
    made = serve(at(disk, "earlier"))["a-0"]
    assert isinstance(made, Served)
    assert made.records == tuple(one for one in right.records if one[2] <= NOW_MS + 30)


def test_a_damaged_object_is_not_restored(disk: SimulatedDisk) -> None:
    """The next attempt fetches only what is missing."""
    back_up(disk)
    manifest = read_manifest(place_of(disk))
    file = next(file for file in manifest.files if file.path.startswith("t-0/"))
    path = f"place/{file.object_path}"
    right = disk.read_file(path)
    disk.write_file_atomically(path, right[:-1] + b"?")
    with pytest.raises(CorruptMessage, match=r"the backup's t-0/.* is damaged"):
        bring_back(disk)
    assert "made" not in disk.list()
    disk.write_file_atomically(path, right)
    result = bring_back(disk)
    assert result.fetched_bytes < sum(one.size for one in manifest.files)
    assert find(at(disk, "made")) == []


def test_what_another_attempt_fetched_is_not_restored(disk: SimulatedDisk) -> None:
    """An interrupted restore of a partition leaves files, and the next one is of another."""
    source = at(disk, "source")
    source.remove_tree(METADATA_LOG)
    source.make("a-1")
    for name in source.list("a-0"):
        source.write_file_atomically(f"a-1/{name}", source.read_file(f"a-0/{name}"))
    lines = source.read_file(HIGH_WATERMARK_CHECKPOINT).decode().splitlines()[2:]
    offsets = [*lines, *(f"a 1 {line[4:]}" for line in lines if line.startswith("a 0 "))]
    text = "\n".join(("0", str(len(offsets)), *offsets, ""))
    source.write_file_atomically(HIGH_WATERMARK_CHECKPOINT, text.encode())
    back_up(disk)
    disk.fail(lambda call: call.kind == "sync" and call.path.endswith("a-0/partition.metadata"))
    with pytest.raises(OSError, match="EIO"):
        bring_back(disk, partitions=frozenset({TopicPartition("a", 0)}))
    bring_back(disk, partitions=frozenset({TopicPartition("a", 1)}))
    assert "a-1" in disk.list("made")
    assert "a-0" not in disk.list("made")


def test_a_cut_object_is_stored_again(disk: SimulatedDisk) -> None:
    """The next backup does not count on an object of another length."""
    back_up(disk)
    file = max(read_manifest(place_of(disk)).files, key=lambda file: file.size)
    path = f"place/{file.object_path}"
    disk.write_file_atomically(path, disk.read_file(path)[:-1])
    assert back_up(disk, NOW_MS + 1).stored_bytes == file.size
    bring_back(disk)
    assert find(at(disk, "made")) == []


def test_a_file_that_is_replaced_between_two_reads(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No object has other content than its name says."""
    name = next(f"a-0/{name}" for name in at(disk, "source").list("a-0") if name.endswith(".log"))
    right, put_file = disk.read_file(f"source/{name}"), DirectoryStore.put

    def put(store: DirectoryStore, path: str, blocks: Any) -> None:
        if path.endswith(hashlib.sha256(right).hexdigest()):
            disk.write_file_atomically(f"source/{name}", right[:-1] + b"?")
        put_file(store, path, blocks)

    monkeypatch.setattr(DirectoryStore, "put", put)
    back_up(disk)
    for path in place_of(disk).sizes("objects"):
        data = disk.read_file(f"place/{path}")
        assert hashlib.sha256(data).hexdigest() == path.rpartition("/")[2]


def test_half_a_backup_is_none(disk: SimulatedDisk) -> None:
    """Without its manifest, or with a part of it."""
    back_up(disk)
    path = f"place/{read_manifest(place_of(disk)).path}"
    data = disk.read_file(path)
    disk.write_file_atomically(path, data[: len(data) // 2])
    with pytest.raises(CorruptMessage, match="the manifest cannot be read"):
        bring_back(disk)
    disk.remove(path)
    with pytest.raises(LocalDiskError, match="there is no complete backup here"):
        bring_back(disk)


@pytest.mark.parametrize("data", [b"[" * 60_000, b" " * 70_000])
def test_a_hostile_marker(disk: SimulatedDisk, data: bytes) -> None:
    """Deep or large: it is refused."""
    disk.write_file_atomically(f"place/{MARKER}", data)
    with pytest.raises((CorruptMessage, LocalDiskError), match=MARKER):
        back_up(disk)


def test_other_clusters_and_formats(disk: SimulatedDisk) -> None:
    """A place belongs to one node."""
    back_up(disk)
    marker = json.loads(disk.read_file(f"place/{MARKER}"))
    for change, text in (
        ({"cluster_id": "other"}, "of cluster other"),
        ({"node_id": 7}, "of node 7"),
        ({"format": 2}, "have format 2"),
    ):
        disk.write_file_atomically(f"place/{MARKER}", json.dumps({**marker, **change}).encode())
        with pytest.raises(LocalDiskError, match=text):
            back_up(disk, NOW_MS + 1)
    with pytest.raises(LocalDiskError, match="there is no backup 12 here"):
        bring_back(disk, backup_id="12")
    disk.make("taken")
    with pytest.raises(LocalDiskError, match="taken exists"):
        bring_back(disk, "taken")


@pytest.mark.parametrize(
    "path",
    [
        "../outside",
        "/etc/passwd",
        "a-0/../../outside",
        "a-0/x/00000000000000000000.log",
        "a-0/run.sh",
        "..-0/00000000000000000000.log",
        "a-0/00000000000000000000.log",
        "meta.properties/x",
        "a-0//00000000000000000000.log",
        "",
    ],
)
def test_a_hostile_manifest_writes_nowhere(disk: SimulatedDisk, path: str) -> None:
    """Paths outside, no files of a node, and twice the same."""
    back_up(disk)
    manifest = read_manifest(place_of(disk))
    files = [*manifest.files, manifest.files[0]._replace(path=path)]
    disk.write_file_atomically(
        f"place/{manifest.path}", encode_manifest(manifest._replace(files=files))
    )
    with pytest.raises(CorruptMessage, match="no file of a node"):
        bring_back(disk)
    assert disk.list() == ["place", "source"]


@pytest.mark.parametrize("digest", ["../../x", "a" * 63, "A" * 64])
def test_a_hostile_checksum_reads_nothing(disk: SimulatedDisk, digest: str) -> None:
    """It is part of a path."""
    back_up(disk)
    manifest = read_manifest(place_of(disk))
    files = [manifest.files[0]._replace(sha256=digest), *manifest.files[1:]]
    with pytest.raises(CorruptMessage, match="no valid checksum"):
        decode_manifest(encode_manifest(manifest._replace(files=files)))


def test_any_bytes_as_a_manifest() -> None:
    """They raise CorruptMessage, and nothing else."""
    infinite = '{"format":1,"backup_id":"","cluster_id":"","node_id":1e999,"files":[],"offsets":[]}'
    for content in ("{}", "[]", "null", '{"format":1}', "[" * 100_000, infinite):
        text = json.dumps(
            {"sha256": hashlib.sha256(content.encode()).hexdigest(), "content": content}
        )
        for data in (content.encode(), text.encode(), b"\xff\xfe", b""):
            with pytest.raises(CorruptMessage):
                decode_manifest(data)


def test_leftovers_are_no_backups(disk: SimulatedDisk) -> None:
    """Unfinished files and other names in the place are passed over."""
    back_up(disk)
    for name in ("000000000000001.json.part", "notes.txt", "1.json", "9" * 15 + ".json"):
        disk.write_file_atomically(f"place/{MANIFESTS}/{name}", b"{}")
    assert len(read_backups(place_of(disk))) == 1
