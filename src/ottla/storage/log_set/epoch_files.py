"""The leader-epoch-checkpoint files of logs with a new leader epoch, as jobs.

A new epoch without records needs no sync: only a power cut can lose it, and the next flush of the
log writes and syncs the file. Here it is only written, so that it survives the process.
Kafka: LeaderEpochFileCache.assign.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.layout import LEADER_EPOCH_CHECKPOINT
from ottla.storage.log.flush import replace_file

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.flushes import EpochFile
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.flush_queue import FlushQueue
    from ottla.storage.log_set.jobs import StorageJob
    from ottla.storage.log_set.table import LogTable

MAX_FILES: Final = 128
"""Files in the jobs of one call: each holds a descriptor until its job is done."""


class EpochFiles:
    """Logs whose epochs are to be written."""

    def __init__(self, table: LogTable, flushes: FlushQueue) -> None:
        self._table = table
        self._flushes = flushes
        self._requested: dict[PartitionLog, None] = {}

    def request(self, log: PartitionLog) -> None:
        """Request the file of a log with a new epoch."""
        self._requested[log] = None

    def take(self) -> list[StorageJob]:
        """Return a job for each directory; some logs may be left for the next call."""
        files: dict[LogDirectory, list[EpochFile]] = {}
        for log in list(islice(self._requested, MAX_FILES)):
            del self._requested[log]
            log_dir = self._table.directory_of(log)
            if log_dir is None:
                continue
            if log.is_flushing:
                self._requested[log] = None
                continue
            file = self._open(log, log_dir)
            if file is not None:
                files.setdefault(log_dir, []).append(file)
        return [EpochFilesJob(self, log_dir, found) for log_dir, found in files.items()]

    def _open(self, log: PartitionLog, log_dir: LogDirectory) -> EpochFile | None:
        try:
            return log.flushes.open_epochs()
        except OSError as error:
            if is_exhaustion(error):
                self.request(log)
            else:
                self._table.fail(log_dir, error)
            return None

    def written(
        self, log_dir: LogDirectory, files: list[EpochFile], error: BaseException | None
    ) -> None:
        """Take the result of a job: a disk that failed takes its directory offline."""
        for file in files:
            file.log.flushes.epochs_saved(file, is_done=error is None)
            self._flushes.resume(file.log)
            if is_exhaustion(error):
                self.request(file.log)
        if error is not None and not is_exhaustion(error):
            self._table.fail(log_dir, error)


class EpochFilesJob:
    """Writes the files of some logs in one directory."""

    __slots__ = ("_files", "_log_dir", "_queue")

    def __init__(self, queue: EpochFiles, log_dir: LogDirectory, files: list[EpochFile]) -> None:
        self._queue = queue
        self._log_dir = log_dir
        self._files = files

    @property
    def volume(self) -> Hashable:
        """The volume whose disk it waits for."""
        return self._log_dir.directory.volume

    def run(self) -> None:
        """Replace the files, except those of deleted partitions."""
        for file in self._files:
            with suppress(FileNotFoundError):
                replace_file(file.directory, LEADER_EPOCH_CHECKPOINT, file.data, sync=False)

    def done(self, error: BaseException | None) -> None:
        """Record what is written."""
        self._queue.written(self._log_dir, self._files, error)
