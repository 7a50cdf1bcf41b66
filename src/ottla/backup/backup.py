"""Makes a backup of a node's log directory; the node may run, and is not locked.

The high watermarks of all partitions are those of the node's checkpoint, one file that it replaces
as a whole: one moment, at most some seconds ago. Below a high watermark no record changes; only
compaction, retention and deletion take files away, and then the partition is read again. The
metadata is read after the watermarks, so that it knows all topics. Content is stored by its
SHA-256: what earlier backups have is not stored again, and what has the length and time of an
earlier backup's file is not even read.

Kafka: none.
"""

from __future__ import annotations

import hashlib
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.backup.manifest import (
    OBJECTS,
    Manifest,
    StoredFile,
    claim,
    encode_manifest,
    read_backups,
    read_listed_manifest,
)
from ottla.backup.store import BLOCK_BYTES
from ottla.errors import CorruptMessage, LocalDiskError
from ottla.raft.snapshot import parse_snapshot_name, snapshot_name
from ottla.storage.batches import walk_file
from ottla.storage.directories.checkpoints import encode_offsets, read_offsets
from ottla.storage.directories.log_dir import decode_meta_properties
from ottla.storage.directories.partition_dir_names import partition_of
from ottla.storage.directory import join
from ottla.storage.layout import (
    BOOTSTRAP_CHECKPOINT,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    METADATA_LOG,
    PARTITION_METADATA,
    QUORUM_STATE,
    RECOVERY_POINT_CHECKPOINT,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    base_offset_of,
    segment_file_name,
)
from ottla.storage.log.inspection import base_offsets
from ottla.storage.segments.segment_recovery import read_valid_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.backup.store import BackupStore
    from ottla.storage.batches import BatchHeader
    from ottla.storage.directory import Directory
    from ottla.types import TopicPartition

_ATTEMPTS: Final = 10
"""Of reading one partition: a cleaner replaces segments in milliseconds, minutes apart."""


class BackupResult(NamedTuple):
    """What a backup consists of."""

    backup_id: str
    partition_count: int
    total_bytes: int
    stored_bytes: int
    """What earlier backups did not have."""


class Backup:
    """Makes one backup."""

    def __init__(self, directory: Directory, store: BackupStore, *, now_ms: int) -> None:
        self._directory = directory
        self._store = store
        self._backup_id = f"{now_ms:015d}"
        self._known: dict[str, StoredFile] = {}
        self._objects: dict[str, int] = {}
        self._files: list[StoredFile] = []
        self._stored_bytes = 0

    def run(
        self, on_partition: Callable[[str, int], None] = lambda _name, _total: None
    ) -> BackupResult:
        """Store all files, then the manifest; on_partition(name, total) is called after each."""
        directory, store = self._directory, self._store
        meta = decode_meta_properties(directory.read_file(META_PROPERTIES))
        if not directory.exists(HIGH_WATERMARK_CHECKPOINT) and any(
            partition_of(name) and name != METADATA_LOG for name in directory.list()
        ):
            raise LocalDiskError(
                f"the node has not written {HIGH_WATERMARK_CHECKPOINT} yet: wait some seconds, or "
                "stop the node"
            )
        claim(store, meta.cluster_id, meta.node_id)
        for backup_id in read_backups(store)[-1:]:
            with suppress(CorruptMessage):
                manifest = read_listed_manifest(store, backup_id)
                self._known = {file.path: file for file in manifest.files}
        self._objects = store.sizes(OBJECTS)
        offsets = read_offsets(directory, HIGH_WATERMARK_CHECKPOINT)
        log_starts = read_offsets(directory, LOG_START_CHECKPOINT)
        cleaned = read_offsets(directory, CLEANER_CHECKPOINT)
        taken: dict[TopicPartition, int] = {}
        for partition, offset in offsets.items():
            name = str(partition)
            if self._retried(name, partial(self._take_log, name, offset)):
                taken[partition] = offset
            on_partition(name, len(offsets))
        if directory.is_directory(METADATA_LOG):
            self._retried(METADATA_LOG, self._take_metadata)
        for name in (META_PROPERTIES, BOOTSTRAP_CHECKPOINT):
            if directory.exists(name):
                self._take_bytes(name, directory.read_file(name))
        for name, values in (
            (HIGH_WATERMARK_CHECKPOINT, taken),
            (RECOVERY_POINT_CHECKPOINT, taken),
            (LOG_START_CHECKPOINT, log_starts),
            (CLEANER_CHECKPOINT, cleaned),
        ):
            kept = {partition: values[partition] for partition in values if partition in taken}
            self._take_bytes(name, encode_offsets(kept))
        manifest = Manifest(self._backup_id, meta.cluster_id, meta.node_id, taken, self._files)
        store.put(manifest.path, (encode_manifest(manifest),))
        total = sum(file.size for file in self._files)
        return BackupResult(self._backup_id, len(taken), total, self._stored_bytes)

    def _retried(self, name: str, take: Callable[[], None]) -> bool:
        """Take a directory whose files do not change meanwhile; False when it is gone."""
        for _ in range(_ATTEMPTS):
            if not self._directory.is_directory(name):
                return False
            count = len(self._files)
            before = self._segments(name)
            try:
                take()
                if before == self._segments(name):
                    return True
            except FileNotFoundError:
                pass
            del self._files[count:]
        raise LocalDiskError(f"{name} changes all the time: make the backup again later")

    def _segments(self, name: str) -> list[tuple[int, int]]:
        """Return what tells that no segment but the last was replaced."""
        bases = base_offsets(self._directory, name)
        with suppress(FileNotFoundError):
            return [
                (base, self._directory.size(join(name, segment_file_name(base, LOG_SUFFIX))))
                for base in bases[:-1]
            ]
        return []

    def _take_log(self, name: str, end_offset: int) -> None:
        """Store a partition's files up to an offset."""
        directory = self._directory
        bases = [base for base in base_offsets(directory, name) if base < end_offset]
        for number, base_offset in enumerate(bases):
            path = join(name, segment_file_name(base_offset, LOG_SUFFIX))
            is_last = number + 1 == len(bases)
            with closing(directory.open(path)) as file:
                size = file.size()
                if is_last:
                    size = _prefix_bytes(walk_file(file, 0, size), end_offset)
            self._take_file(path, size)
            for suffix in () if is_last else SEGMENT_SUFFIXES:
                path = join(name, segment_file_name(base_offset, suffix))
                if suffix not in {LOG_SUFFIX, SNAPSHOT_SUFFIX} and directory.exists(path):
                    self._take_file(path, directory.size(path))
        for other in directory.list(name):
            offset = base_offset_of(other, SNAPSHOT_SUFFIX)
            is_state = offset is not None and offset <= end_offset
            if is_state or other in {LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA}:
                self._take_bytes(join(name, other), directory.read_file(join(name, other)))

    def _take_metadata(self) -> None:
        """Store the newest snapshot and the log; its valid end is as good as its high watermark."""
        directory, names = self._directory, self._directory.list(METADATA_LOG)
        snapshots = sorted(one for one in map(parse_snapshot_name, names) if one is not None)
        for snapshot_id in snapshots[-1:]:
            path = join(METADATA_LOG, snapshot_name(snapshot_id))
            self._take_file(path, directory.size(path))
        for base_offset in base_offsets(directory, METADATA_LOG):
            path = join(METADATA_LOG, segment_file_name(base_offset, LOG_SUFFIX))
            with closing(directory.open(path)) as file:
                headers = (header for header, _ in read_valid_batches(file, file.size()))
                size = _prefix_bytes(headers, 1 << 62)
            self._take_file(path, size)
        for name in (QUORUM_STATE, PARTITION_METADATA):
            if name in names:
                path = join(METADATA_LOG, name)
                self._take_bytes(path, directory.read_file(path))

    def _take_bytes(self, path: str, data: bytes) -> None:
        digest = hashlib.sha256(data).hexdigest()
        self._store_once(StoredFile(path, len(data), digest), lambda: iter((data,)))

    def _take_file(self, path: str, size: int) -> None:
        """Store the first `size` bytes of a file."""
        directory = self._directory
        source = (directory.size(path), directory.modified_ms(path), size)
        known = self._known.get(path)
        if known is not None and known.source == source and self._is_stored(known):
            self._files.append(known)
            return
        digest = hashlib.sha256()
        for block in self._blocks(path, size):
            digest.update(block)
        file = StoredFile(path, size, digest.hexdigest(), source)
        self._store_once(file, lambda: self._same_blocks(file))

    def _is_stored(self, file: StoredFile) -> bool:
        """Whether the store has the content; an object of another length is damaged."""
        return self._objects.get(file.object_path) == file.size

    def _store_once(self, file: StoredFile, blocks: Callable[[], Iterator[bytes]]) -> None:
        if not self._is_stored(file):
            self._store.put(file.object_path, blocks())
            self._objects[file.object_path] = file.size
            self._stored_bytes += file.size
        self._files.append(file)

    def _blocks(self, path: str, size: int) -> Iterator[bytes]:
        with closing(self._directory.open(path)) as file:
            for position in range(0, size, BLOCK_BYTES):
                data = file.read(position, min(BLOCK_BYTES, size - position))
                if not data:
                    raise FileNotFoundError(path)  # it was cut or replaced: read again
                yield data

    def _same_blocks(self, file: StoredFile) -> Iterator[bytes]:
        """Yield a file's blocks again; the name of the object must be that of its content."""
        digest = hashlib.sha256()
        for block in self._blocks(file.path, file.size):
            digest.update(block)
            yield block
        if digest.hexdigest() != file.sha256:
            raise FileNotFoundError(file.path)  # it was replaced meanwhile


def _prefix_bytes(headers: Iterator[BatchHeader], end_offset: int) -> int:
    """Return where the last batch that ends before an offset ends."""
    end = 0
    for header in headers:
        if header.last_offset >= end_offset:
            break
        end = header.position + header.size
    return end
