"""A directory as remote storage: a second disk, or a file system of the network.

Names and bytes are those of Kafka's LocalTieredStorage, so that each reads what the other copied:
`<dir>/kafka-tiered-storage/<topic>-<partition>-<topic id>/<start offset>-<segment id>.log` and the
like. Other than Kafka's, files are synced before a copy counts as done, since the local segment is
deleted then. A marker with the cluster's id lies alongside Kafka's directory: two clusters on one
directory would delete what they do not know.

Kafka: org.apache.kafka.server.log.remote.storage.{LocalTieredStorage, RemoteLogSegmentFileset},
of the tests of its module storage.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, BinaryIO, Final

from ottla.errors import ConfigError
from ottla.storage.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from ottla.storage.remote.storage_manager import (
    BUFFER_BYTES,
    IndexKind,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    file_stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ottla.storage.directory import Directory
    from ottla.storage.remote.segment import RemoteSegment
    from ottla.storage.remote.storage_manager import SegmentFiles
    from ottla.types import Buffer

ROOT: Final = "kafka-tiered-storage"
MARKER: Final = "ottla-cluster-id"
LEADER_EPOCHS_SUFFIX: Final = ".leader_epoch_checkpoint"
INDEX_SUFFIXES: Final[Mapping[IndexKind, str]] = {
    IndexKind.OFFSET: INDEX_SUFFIX,
    IndexKind.TIMESTAMP: TIME_INDEX_SUFFIX,
    IndexKind.PRODUCER_SNAPSHOT: SNAPSHOT_SUFFIX,
    IndexKind.TRANSACTION: TRANSACTION_INDEX_SUFFIX,
    IndexKind.LEADER_EPOCH: LEADER_EPOCHS_SUFFIX,
}
_TESTS_ONLY: Final = ("transferer.class", "delete.on.close", "delete.enable")
"""Settings by which Kafka's tests let it fail or forget."""


def partition_path(segment: RemoteSegment) -> str:
    """Return the name of the partition's directory."""
    return f"{segment.topic}-{segment.partition}-{segment.topic_id}"


def file_path(segment: RemoteSegment, suffix: str) -> str:
    """Return the path of one of the segment's files below the store's root."""
    name = segment_file_name(segment.start_offset, f"-{segment.segment_id}{suffix}")
    return f"{partition_path(segment)}/{name}"


def contents(
    files: SegmentFiles, block_bytes: int = BUFFER_BYTES
) -> Iterator[tuple[str, Iterable[Buffer]]]:
    """Yield suffix and content of each file to be copied, in Kafka's order."""
    yield LOG_SUFFIX, files.log.blocks(block_bytes)
    yield INDEX_SUFFIX, files.offset_index.blocks()
    yield TIME_INDEX_SUFFIX, files.time_index.blocks()
    if files.transaction_index is not None:
        yield TRANSACTION_INDEX_SUFFIX, files.transaction_index.blocks()
    yield LEADER_EPOCHS_SUFFIX, (files.leader_epochs,)
    yield SNAPSHOT_SUFFIX, files.producer_snapshot.blocks()


def check_owner(marker: bytes, cluster_id: str) -> None:
    """Raise ConfigError when the marker of a store names another cluster."""
    owner = marker.decode("utf-8", "replace").strip()
    if owner != cluster_id:
        raise ConfigError(
            f"this is the remote storage of cluster {owner}, not of {cluster_id}: give each "
            f"cluster a place of its own (remove {MARKER} there if that cluster is gone)"
        )


def _path(segment: RemoteSegment, suffix: str) -> str:
    return f"{ROOT}/{file_path(segment, suffix)}"


class DirectoryStorage:
    """Segments in a directory that all brokers of the cluster reach; `dir` is its only setting."""

    def __init__(self, open_directory: Callable[[str], Directory]) -> None:
        """open_directory(path) returns a directory, made when missing."""
        self._open_directory = open_directory
        self._directory: Directory

    def configure(self, settings: Mapping[str, str]) -> None:
        """Make the directory; ConfigError when it is another cluster's."""
        path = settings.get("dir")
        if not path:
            raise ConfigError("the directory of remote storage is not set: dir")
        for name in _TESTS_ONLY:
            if name in settings:
                raise ConfigError(f"{name} is for Kafka's tests: Ottla does not have it")
        directory = self._open_directory(path)
        if cluster_id := settings.get("cluster.id"):
            self._claim(directory, cluster_id)
        directory.make(ROOT)
        directory.sync()
        self._directory = directory

    def _claim(self, directory: Directory, cluster_id: str) -> None:
        if not directory.exists(MARKER):
            directory.write_file_atomically(MARKER, f"{cluster_id}\n".encode())
        check_owner(directory.read_file(MARKER), cluster_id)

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> None:
        """Copy and sync all files; after an error none is left where that is possible."""
        directory, parent = self._directory, f"{ROOT}/{partition_path(segment)}"
        if directory.exists(_path(segment, LOG_SUFFIX)):
            raise RemoteStorageError(f"{_path(segment, LOG_SUFFIX)} exists")
        try:
            directory.make(parent)
            for suffix, blocks in contents(files):
                with closing(directory.open(_path(segment, suffix), create=True)) as file:
                    for block in blocks:
                        file.append((block,))
                    file.sync()
            directory.sync(parent)
            directory.sync(ROOT)
        except BaseException as error:
            with suppress(OSError):
                self._remove(segment)
            if isinstance(error, OSError):
                raise RemoteStorageError(f"segment not copied to {parent}: {error}") from error
            raise

    def read_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        """Return a range of the log; a file of another length than it had is not read."""
        stop = segment.size_bytes if end is None else min(end + 1, segment.size_bytes)
        return self._stream(segment, LOG_SUFFIX, start, stop)

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        """Return one index."""
        return self._stream(segment, INDEX_SUFFIXES[kind], 0, None)

    def _stream(
        self, segment: RemoteSegment, suffix: str, start: int, stop: int | None
    ) -> BinaryIO:
        path = _path(segment, suffix)
        try:
            file = self._directory.open(path)
            size = file.size()
        except FileNotFoundError as error:
            raise RemoteResourceNotFoundError(f"remote storage has no {path}") from error
        except OSError as error:
            raise RemoteStorageError(f"{path} cannot be read: {error}") from error
        if suffix == LOG_SUFFIX and size != segment.size_bytes:
            raise RemoteStorageError(f"{path} has {size} bytes, and had {segment.size_bytes}")
        return file_stream(file, start, size if stop is None else stop)

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete all files; the partition's directory stays, as with Kafka."""
        try:
            self._remove(segment)
        except OSError as error:
            raise RemoteStorageError(
                f"segment {segment.segment_id} not deleted: {error}"
            ) from error

    def _remove(self, segment: RemoteSegment) -> None:
        for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES.values()):
            with suppress(FileNotFoundError):
                self._directory.remove(_path(segment, suffix))
        with suppress(FileNotFoundError):
            self._directory.sync(f"{ROOT}/{partition_path(segment)}")

    def close(self) -> None:
        """Hold nothing open between calls."""
