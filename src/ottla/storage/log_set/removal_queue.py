"""The removal of deleted partitions and segments, as jobs.

Kafka: LogManager.deleteLogs, LocalLog.deleteSegmentFiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.disk_errors import is_exhaustion

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.jobs import StorageJob
    from ottla.storage.log_set.table import LogTable


MAX_REMOVALS = 512
"""Logs whose deleted segments' files are removed in one call."""


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


class RemovalQueue:
    """Directories and segments that wait until file.delete.delay.ms is over."""

    def __init__(self, table: LogTable) -> None:
        self._table = table
        self._removals: list[Removal] = []
        self._with_deleted_segments: dict[PartitionLog, None] = {}

    def add(self, removal: Removal) -> None:
        """Add a deleted partition's directory, or one whose removal must be retried."""
        self._removals.append(removal)

    def forget(self, log_dir: LogDirectory) -> None:
        """Forget a directory that is read again: the deleted ones in it are found then."""
        self._removals = [one for one in self._removals if one.log_dir is not log_dir]

    def segments_deleted(self, log: PartitionLog) -> None:
        """Record that a log has deleted segments whose files must be removed."""
        if self._table.holds(log):
            self._with_deleted_segments[log] = None

    def take_due(self, now_ms: int) -> list[StorageJob]:
        """Return the jobs that remove what was deleted file.delete.delay.ms ago.

        Some segments may be left for the next call.
        """
        due: list[Removal] = []
        removals, self._removals = self._removals, []
        for entry in removals:
            (due if entry.is_due(now_ms) else self._removals).append(entry)
        jobs: list[StorageJob] = [
            RemovalJob(self, self._table, removal) for removal in due if removal.log_dir.is_online
        ]
        return jobs + self._take_segments(now_ms)

    def _take_segments(self, now_ms: int) -> list[StorageJob]:
        jobs: list[StorageJob] = []
        for log in list(self._with_deleted_segments):
            if len(jobs) >= MAX_REMOVALS:
                break
            log_dir = self._table.directory_of(log)
            if log_dir is None:  # they are removed with the partition's directory
                del self._with_deleted_segments[log]
                continue
            remove = log.take_removal(now_ms)
            if remove is not None:
                jobs.append(SegmentRemovalJob(self._table, log_dir, remove))
            if not log.has_deleted_segments:
                del self._with_deleted_segments[log]
        return jobs


class RemovalJob:
    """Removes the directory of a deleted partition."""

    __slots__ = ("_queue", "_removal", "_table")

    def __init__(self, queue: RemovalQueue, table: LogTable, removal: Removal) -> None:
        self._queue = queue
        self._table = table
        self._removal = removal

    @property
    def volume(self) -> Hashable:
        """The volume whose disk it waits for."""
        return self._removal.log_dir.directory.volume

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

    __slots__ = ("_log_dir", "_table", "run")

    def __init__(self, table: LogTable, log_dir: LogDirectory, remove: Callable[[], None]) -> None:
        self._table = table
        self._log_dir = log_dir
        self.run = remove

    @property
    def volume(self) -> Hashable:
        """The volume whose disk it waits for."""
        return self._log_dir.directory.volume

    def done(self, error: BaseException | None) -> None:
        """Put the log directory offline on failure."""
        if error is not None:
            self._table.fail(self._log_dir, error)
