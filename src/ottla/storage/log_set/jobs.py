"""Disk work: `run` executes in a worker, `done` on the node's loop.

Kafka: the background tasks of kafka.log.LogManager.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.errors import KafkaError
from ottla.storage.directories.checkpoints import RECOVERY_POINT_CHECKPOINT
from ottla.storage.disk_errors import is_exhaustion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.flush import FlushJob
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.checkpoint_queue import CheckpointQueue
    from ottla.storage.log_set.flush_queue import FlushQueue
    from ottla.storage.log_set.removal_queue import RemovalQueue
    from ottla.storage.log_set.table import LogTable
    from ottla.types import TopicPartition


class StorageJob(Protocol):
    """One unit of disk work; a directory whose job fails goes offline."""

    def run(self) -> None:
        """Do the work; OSError when the disk fails. Touches no shared state."""

    def done(self, error: BaseException | None) -> None:
        """Apply the result on the owner's thread."""


class LogFlush:
    """Flushes one log."""

    __slots__ = ("_job", "_log", "_queue", "_table", "run")

    def __init__(
        self, queue: FlushQueue, table: LogTable, log: PartitionLog, job: FlushJob
    ) -> None:
        self._queue = queue
        self._table = table
        self._log = log
        self._job = job
        self.run = job.run

    def done(self, error: BaseException | None) -> None:
        """Advance the recovery point, or put the directory offline."""
        failure = error if error is None or isinstance(error, OSError) else OSError(str(error))
        try:
            self._log.flushes.completed(self._job, failure)
        except KafkaError as storage_error:
            log_dir = self._table.log_dirs.get(self._log.topic_partition)
            if log_dir is not None:
                self._table.fail(log_dir, storage_error.__cause__)
        self._queue.completed(self._log, may_go_on=error is None)


class CheckpointJob:
    """Writes checkpoint files of one directory.

    The worker writes temporary files; `done` renames them on the owner's thread, unless a newer job
    of the directory did so before: a recovery point that was lowered must not rise again.
    """

    __slots__ = ("_files", "_log_dir", "_queue", "_sequence", "_table")

    def __init__(
        self,
        queue: CheckpointQueue,
        table: LogTable,
        log_dir: LogDirectory,
        files: Mapping[str, Mapping[TopicPartition, int]],
    ) -> None:
        self._queue = queue
        self._table = table
        self._log_dir = log_dir
        self._files = files
        self._sequence = log_dir.begin_checkpoint(files)
        log_dir.checkpoints_under_way += 1

    def run(self) -> None:
        """Write the temporary files durably."""
        for name, offsets in self._files.items():
            self._log_dir.write_offsets_to_new_file(name, offsets, self._sequence)

    def done(self, error: BaseException | None) -> None:
        """Rename the files, or put the directory offline; without descriptors retry later."""
        self._log_dir.checkpoints_under_way -= 1
        if self._log_dir.failure is not None:
            return
        placed: list[str] = []
        if error is None:
            try:
                placed = [name for name in self._files if self._put_in_place(name)]
            except OSError as failure:
                error = failure
        if is_exhaustion(error):
            self._queue.request(self._log_dir)
        elif error is not None:
            self._table.fail(self._log_dir, error)
        elif RECOVERY_POINT_CHECKPOINT in placed:
            self._queue.written(self._files[RECOVERY_POINT_CHECKPOINT])

    def _put_in_place(self, name: str) -> bool:
        return self._log_dir.put_in_place(name, self._sequence)

    def run_now(self) -> None:
        """Run the job on this thread; durable on return. Waits for the disk."""
        error: BaseException | None = None
        try:
            self.run()
        except OSError as failure:
            error = failure
        self.done(error)
        if self._log_dir.failure is None:
            try:
                self._log_dir.directory.sync()
            except OSError as failure:
                self._table.fail(self._log_dir, failure)


class Removal(NamedTuple):
    """A deleted partition's directory, to be removed at due_ms or later."""

    due_ms: int
    log_dir: LogDirectory
    name: str
    log: PartitionLog | None = None
    """The log, when this process opened it: a flush of it may be running."""

    def is_due(self, now_ms: int) -> bool:
        """Whether the delay is over and no worker writes into the directory."""
        return self.due_ms <= now_ms and (self.log is None or not self.log.is_flushing)


class RemovalJob:
    """Removes the directory of a deleted partition."""

    __slots__ = ("_queue", "_removal", "_table")

    def __init__(self, queue: RemovalQueue, table: LogTable, removal: Removal) -> None:
        self._queue = queue
        self._table = table
        self._removal = removal

    def run(self) -> None:
        """Remove the directory tree."""
        self._removal.log_dir.directory.remove_tree(self._removal.name)

    def done(self, error: BaseException | None) -> None:
        """Put the log directory offline on failure; without descriptors retry later."""
        if is_exhaustion(error):
            self._queue.add(self._removal)
        elif error is not None:
            self._table.fail(self._removal.log_dir, error)


class SegmentRemovalJob:
    """Removes the files of a log's deleted segments."""

    __slots__ = ("_log_dir", "_paths", "_table")

    def __init__(self, table: LogTable, log_dir: LogDirectory, paths: list[str]) -> None:
        self._table = table
        self._log_dir = log_dir
        self._paths = paths

    def run(self) -> None:
        """Remove the files that exist; those of a deleted partition are removed with it."""
        for path in self._paths:
            with suppress(FileNotFoundError):
                self._log_dir.directory.remove(path)

    def done(self, error: BaseException | None) -> None:
        """Put the log directory offline on failure."""
        if error is not None:
            self._table.fail(self._log_dir, error)
