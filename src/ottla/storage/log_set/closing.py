"""The close of all logs at a clean stop, as concurrent jobs.

Concurrent syncs share the file system's journal commits.

Kafka: LogManager.shutdown, which has num.recovery.threads.per.data.dir threads for each directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import KafkaError
from ottla.storage.log.flush import SharedSync
from ottla.storage.log_set.log_flush import LogFlush

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.jobs import StorageJob
    from ottla.storage.log_set.table import LogTable

LOGS_AT_ONCE: Final = 128
"""Logs that are being closed at a time: each holds descriptors until its job is done."""


class LogClosing:
    """Closes each log once; a directory whose log cannot be closed goes offline."""

    def __init__(self, table: LogTable) -> None:
        self._table = table
        self._closed: set[PartitionLog] = set()

    def batches(self, log_dir: LogDirectory) -> Iterator[list[StorageJob]]:
        """Close a directory's logs and yield their last jobs.

        A list must be done before the next is taken. No other job of a log may be under way.
        """
        logs = [one for one in self._table.logs_in(log_dir) if one not in self._closed]
        for start in range(0, len(logs), LOGS_AT_ONCE):
            names = SharedSync(log_dir.directory)
            batch = logs[start : start + LOGS_AT_ONCE]
            jobs = [job for log in batch for job in self._close(log_dir, log, names)]
            if jobs:
                yield jobs

    def _close(
        self, log_dir: LogDirectory, log: PartitionLog, names: SharedSync
    ) -> list[StorageJob]:
        """Return the job that makes a log durable; none when it is, and is closed now."""
        if not log_dir.is_online:
            return []
        self._closed.add(log)
        try:
            job = log.flushes.close(names)
        except KafkaError as error:
            self._table.fail(log_dir, error.__cause__)
            return []
        if job is None:
            log.release()
            return []
        return [LogFlush(self._table, log, job, lambda _is_done: log.release())]
