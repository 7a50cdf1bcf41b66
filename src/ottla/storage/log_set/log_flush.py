"""The flush of one log of a set, as a job for a worker.

Kafka: UnifiedLog.flush, LogManager.flushDirtyLogs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ottla.storage.log.flush import FlushJob
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.table import LogTable


class LogFlush:
    """Flushes one log; calls after(is_done) at the end, also when it failed."""

    __slots__ = ("_after", "_job", "_log", "_table", "run")

    def __init__(
        self,
        table: LogTable,
        log: PartitionLog,
        job: FlushJob,
        after: Callable[[bool], object],
    ) -> None:
        self._table = table
        self._log = log
        self._job = job
        self._after = after
        self.run = job.run

    @property
    def volume(self) -> Hashable:
        """The volume whose disk it waits for."""
        return self._log.directory.volume

    def done(self, error: BaseException | None) -> None:
        """Advance the recovery point, or put the directory offline."""
        failure = error if error is None or isinstance(error, OSError) else OSError(str(error))
        try:
            self._log.flushes.completed(self._job, failure)
        except KafkaError as storage_error:
            log_dir = self._table.directory_of(self._log)
            if log_dir is not None:
                self._table.fail(log_dir, storage_error.__cause__)
        self._after(error is None)
