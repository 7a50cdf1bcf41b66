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
            directory.write_file_atomically(path, self.partition_metadata)
            directory.sync()  # the partition's own name
        for file in self.files:
            file.sync()
        for path in self.snapshots:
            if directory.exists(path):
                snapshot = directory.open(path)
                snapshot.sync()
                snapshot.close()
        if self.epochs is not None:
            path = join(self.folder, LEADER_EPOCH_CHECKPOINT)
            directory.write_file_atomically(path, self.epochs)
        if self.sync_directory:
            directory.sync(self.folder)
