"""The durable half of the log's work, cut out so that a worker can do it.

A job holds what it needs (pinned files, bytes to write), touches no state of the log, and waits
for the disk. The log takes note of it in `PartitionLog.flush_completed`, on its own thread.

Kafka: UnifiedLog.flush, LocalLog.flush, LeaderEpochCheckpointFile, PartitionMetadataFile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.storage.directory import join
from ottla.storage.leader_epochs import LEADER_EPOCH_CHECKPOINT
from ottla.storage.partition_metadata import PARTITION_METADATA

if TYPE_CHECKING:
    from ottla.storage.directory import Directory, File
    from ottla.storage.segment import Segment


class FlushJob:
    """Makes a log durable up to `offset`; `run` is safe in a worker and raises OSError."""

    __slots__ = (
        "directory",
        "epochs",
        "epochs_version",
        "files",
        "folder",
        "generation",
        "names_version",
        "offset",
        "partition_metadata",
        "segments",
        "snapshots",
        "sync_directory",
        "vanished",
    )

    def __init__(self, directory: Directory, folder: str, *, offset: int, generation: int) -> None:
        self.directory = directory
        self.folder = folder
        self.offset = offset
        self.generation = generation
        self.files: list[File] = []
        self.segments: list[Segment] = []
        """Those the files are of; for the log, not for the worker."""
        self.snapshots: list[str] = []
        self.names_version = 0
        self.sync_directory = False
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

    def _run(self) -> None:
        directory = self.directory
        if self.partition_metadata is not None:
            path = join(self.folder, PARTITION_METADATA)
            replace_file(directory, path, self.partition_metadata)
            directory.sync()  # the partition's own name
        for file in self.files:
            file.sync()
        for path in self.snapshots:
            if directory.exists(path):
                snapshot = directory.open(path)
                snapshot.sync()
                snapshot.close()
        if self.epochs is not None:
            replace_file(directory, join(self.folder, LEADER_EPOCH_CHECKPOINT), self.epochs)
        if self.sync_directory or self.partition_metadata is not None or self.epochs is not None:
            directory.sync(self.folder)


def replace_file(directory: Directory, path: str, data: bytes) -> None:
    """Put a durable content behind a name; the name is durable once its directory is synced."""
    temporary = f"{path}.tmp"
    file = directory.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(0, data)
        file.sync()
    finally:
        file.close()
    directory.rename(temporary, path)
