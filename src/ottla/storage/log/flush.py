"""The durable half of the log's work, cut out so that a worker can do it.

A job holds what it needs (pinned files, bytes to write), touches no state of the log, and waits
for the disk. The log takes note of it in `PartitionLog.flush_completed`, on its own thread.

Kafka: UnifiedLog.flush, LocalLog.flush, LeaderEpochCheckpointFile, PartitionMetadataFile.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.storage.directories.partition_metadata import PARTITION_METADATA
from ottla.storage.log.leader_epochs import LEADER_EPOCH_CHECKPOINT

if TYPE_CHECKING:
    from ottla.storage.directory import Directory, File, OpenDirectory
    from ottla.storage.segments.segment import Segment


class FlushJob:
    """Makes a log durable up to `offset`; `run` is safe in a worker and raises OSError.

    A topic may be deleted and created again while the job waits, so that it names no path in the
    partition's directory: it holds its files and the directory itself, which keep to the old log.
    """

    __slots__ = (
        "directory",
        "epochs",
        "epochs_version",
        "files",
        "generation",
        "names_version",
        "offset",
        "open_directory",
        "partition_metadata",
        "segments",
        "snapshots",
        "vanished",
    )

    def __init__(self, directory: Directory, *, offset: int, generation: int) -> None:
        self.directory = directory
        self.open_directory: OpenDirectory | None = None
        """The partition's; only where something is to be done in it."""
        self.offset = offset
        self.generation = generation
        self.files: list[File] = []
        self.segments: list[Segment] = []
        """Those the files are of; for the log, not for the worker."""
        self.snapshots: list[str] = []
        """File names."""
        self.names_version = 0
        self.epochs: bytes | None = None
        self.epochs_version = 0
        self.partition_metadata: bytes | None = None
        self.vanished = False

    def run(self) -> None:
        """Write and flush; a partition deleted or renamed meanwhile only sets `vanished`."""
        try:
            self._run()
        except FileNotFoundError:
            self.vanished = True

    def release(self) -> None:
        """Give every descriptor back, on the owner's thread."""
        for file in self.files:
            file.unpin()
        if self.open_directory is not None:
            self.open_directory.close()

    def _run(self) -> None:
        open_directory = self.open_directory
        if open_directory is not None and self.partition_metadata is not None:
            replace_file(open_directory, PARTITION_METADATA, self.partition_metadata)
            self.directory.sync()  # the partition's own name
        for file in self.files:
            file.sync()
        if open_directory is None:
            return
        for name in self.snapshots:
            with suppress(FileNotFoundError):  # retention may take it at any time
                open_directory.sync_file(name)
        if self.epochs is not None:
            replace_file(open_directory, LEADER_EPOCH_CHECKPOINT, self.epochs)
        open_directory.sync()


def replace_file(open_directory: OpenDirectory, name: str, data: bytes) -> None:
    """Put a durable content behind a name; the name is durable once its directory is synced."""
    temporary = f"{name}.tmp"
    open_directory.write_file(temporary, data)
    open_directory.sync_file(temporary)
    open_directory.rename(temporary, name)
