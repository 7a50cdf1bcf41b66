"""Restores a node's log directory, or some of its topics, from a backup.

The files are fetched into a directory of their own, each with its checksum verified; a fetch that
was interrupted goes on where it was. What lies there then is the directory of a node that stopped
at the backup's moment: a branch of it, up to an earlier time if that is requested, is the result.
Its code cuts indexes and producers and aborts the transactions that were open.

Kafka: none.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from ottla.backup.manifest import read_manifest
from ottla.backup.store import BLOCK_BYTES
from ottla.branches.branch import UNFINISHED_PREFIX, BranchRequest, BranchResult, DirectoryBranch
from ottla.errors import CorruptMessage, LocalDiskError
from ottla.storage.directories.partition_dir_names import partition_of
from ottla.storage.directory import join

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.backup.manifest import Manifest, StoredFile
    from ottla.backup.store import BackupStore
    from ottla.branches.fork_point import ForkPoint
    from ottla.storage.directory import Directory
    from ottla.types import TopicPartition, Uuid


class RestoreRequest(NamedTuple):
    """A directory to be made; target is relative to the directory that is passed along."""

    target: str
    point: ForkPoint
    backup_id: str = ""
    """Empty for the newest one."""
    topics: frozenset[str] = frozenset()
    """Only these and the internal ones; empty for all."""
    partitions: frozenset[TopicPartition] = frozenset()
    """Only these of their topics; the node makes the others empty."""
    cluster_id: str = ""
    """Empty for the backup's."""
    directory_id: Uuid | None = None
    """None for the backup's."""


class RestoreResult(NamedTuple):
    """What was restored."""

    backup_id: str
    fetched_bytes: int
    branch: BranchResult


def restore(
    directory: Directory,
    store: BackupStore,
    request: RestoreRequest,
    *,
    now_ms: int,
    on_file: Callable[[StoredFile, int], None] = lambda _file, _total: None,
) -> RestoreResult:
    """Make the target; OttlaError when the backup cannot be used, OSError for the disk."""
    if directory.exists(request.target):
        raise LocalDiskError(f"{request.target} exists: restore into a new directory")
    manifest = read_manifest(store, request.backup_id)
    parent, _, target = request.target.rpartition("/")
    fetched = join(parent, f"{UNFINISHED_PREFIX}restore-{manifest.backup_id}-{target}")
    directory.make(fetched)
    topics = request.topics | {partition.topic for partition in request.partitions}
    files = _files(manifest, topics, request.partitions)
    size = 0
    for file in files:
        size += _fetch(directory, store, fetched, file)
        on_file(file, len(files))
    for partition in {file.partition for file in files} - {None}:
        directory.sync(join(fetched, str(partition)))
    needed = {file.path.partition("/")[0] for file in files}
    for name in sorted(set(directory.list(fetched)) - needed):
        if partition_of(name) is not None:  # of an interrupted attempt with other partitions
            directory.remove_tree(join(fetched, name))
    directory.sync(fetched)
    branch = DirectoryBranch(
        directory,
        BranchRequest(
            fetched,
            request.target,
            request.point,
            topics,
            request.cluster_id,
            request.directory_id,
        ),
        now_ms=now_ms,
    ).run()
    directory.remove_tree(fetched)
    return RestoreResult(manifest.backup_id, size, branch)


def _files(
    manifest: Manifest, topics: frozenset[str], partitions: frozenset[TopicPartition]
) -> list[StoredFile]:
    def is_restored(partition: TopicPartition | None) -> bool:
        if partition is None or partition.topic[:2] == "__" or not topics:
            return True
        chosen = [other for other in partitions if other.topic == partition.topic]
        return partition in chosen if chosen else partition.topic in topics

    return [file for file in manifest.files if is_restored(file.partition)]


def _fetch(directory: Directory, store: BackupStore, fetched: str, file: StoredFile) -> int:
    """Fetch a file unless it is there; CorruptMessage when the store has other bytes."""
    path = join(fetched, file.path)
    if directory.exists(path) and directory.size(path) == file.size:
        digest, position = hashlib.sha256(), 0
        with closing(directory.open(path)) as kept:
            while data := kept.read(position, BLOCK_BYTES):
                digest.update(data)
                position += len(data)
        if digest.hexdigest() == file.sha256:
            return 0
    directory.make(path.rpartition("/")[0])
    digest, size = hashlib.sha256(), 0
    with closing(directory.open(path, create=True)) as made:
        made.truncate(0)
        for block in store.blocks(file.object_path):
            size += len(block)
            if size > file.size:
                break  # an object that does not end must not fill the disk
            digest.update(block)
            made.append((block,))
        made.sync()
    if size != file.size or digest.hexdigest() != file.sha256:
        raise CorruptMessage(
            f"the backup's {file.path} is damaged ({file.object_path}): take another backup"
        )
    return size
