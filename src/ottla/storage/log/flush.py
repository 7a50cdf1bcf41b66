"""The blocking half of a log flush, as a job for a worker.

A job holds pinned files and bytes to write, reads no state of the log and waits for the disk.
`LogFlushes.completed` applies its result on the owner's thread.

Kafka: UnifiedLog.flush, LocalLog.flush, LeaderEpochCheckpointFile, PartitionMetadataFile.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.storage.layout import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    segment_file_name,
)
from ottla.storage.producers.snapshot import encode_snapshot

if TYPE_CHECKING:
    from ottla.storage.directory import Directory, File, OpenDirectory
    from ottla.storage.producers.rebuild import ProducerRebuild
    from ottla.storage.producers.state import Snapshots
    from ottla.storage.segments.segment import Segment
    from ottla.types import Buffer


class SharedSync:
    """The sync of a log directory, shared by the jobs of one call.

    The first job that needs it runs it. Concurrent jobs may run it twice.
    """

    __slots__ = ("_directory", "_is_done")

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._is_done = False

    def run(self) -> None:
        """Make durable which partitions the directory held when the jobs were made."""
        if not self._is_done:
            self._directory.sync()
            self._is_done = True


class FlushJob:
    """Makes a log durable up to `offset`; `run` is safe in a worker and raises OSError.

    A topic may be deleted and created again while the job waits. The job therefore uses no path in
    the partition's directory: its open files and directory keep referring to the old log.
    """

    __slots__ = (
        "epochs",
        "epochs_version",
        "files",
        "generation",
        "names",
        "names_version",
        "offset",
        "open_directory",
        "partition_metadata",
        "rebuild",
        "segments",
        "snapshots",
        "vanished",
    )

    def __init__(self, names: SharedSync, *, offset: int, generation: int) -> None:
        self.names = names
        """Makes the name of the partition's directory durable."""
        self.open_directory: OpenDirectory | None = None
        """The partition's directory; None when the job changes no name in it."""
        self.offset = offset
        self.generation = generation
        self.files: list[File] = []
        self.segments: list[Segment] = []
        """The segments of the files; used by the log, not by the worker."""
        self.snapshots: Snapshots = {}
        """Producer snapshots by offset; entries where the file is not written yet."""
        self.rebuild: ProducerRebuild | None = None
        """Of the producer state of a truncated log; its snapshots are those to be flushed."""
        self.names_version = 0
        self.epochs: bytes | None = None
        self.epochs_version = 0
        self.partition_metadata: bytes | None = None
        self.vanished = False

    def run(self) -> None:
        """Write and flush; a partition deleted or renamed since only sets `vanished`."""
        try:
            self._run()
        except FileNotFoundError:
            self.vanished = True

    def release(self) -> None:
        """Release every descriptor, on the owner's thread."""
        for file in self.files:
            file.unpin()
        if self.open_directory is not None:
            self.open_directory.close()

    def _run(self) -> None:
        open_directory = self.open_directory
        if open_directory is not None and self.partition_metadata is not None:
            replace_file(open_directory, PARTITION_METADATA, self.partition_metadata)
            self.names.run()
        for file in self.files:
            file.sync()
        if open_directory is None:
            return
        if self.rebuild is not None:
            self.rebuild.run()
            self.snapshots = dict(self.rebuild.state.unflushed_snapshots)
        for offset, entries in self.snapshots.items():
            name = segment_file_name(offset, SNAPSHOT_SUFFIX)
            if entries is not None:
                open_directory.write_file(name, encode_snapshot(entries))
            with suppress(FileNotFoundError):  # retention may remove it at any time
                open_directory.sync_file(name)
        if self.epochs is not None:
            replace_file(open_directory, LEADER_EPOCH_CHECKPOINT, self.epochs)
        open_directory.sync()


def replace_file(
    open_directory: OpenDirectory, name: str, data: Buffer, *, sync: bool = True
) -> None:
    """Replace a file, its content durable if sync; its name is once the directory is synced."""
    temporary = f"{name}{TEMPORARY_SUFFIX}"
    open_directory.write_file(temporary, data)
    if sync:
        open_directory.sync_file(temporary)
    open_directory.rename(temporary, name)
