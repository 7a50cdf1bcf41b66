"""The flushes that a node's logs need, as jobs, and the close of all logs at a clean stop.

Flushes run side by side: their syncs share the file system's journal commits.

Kafka: LogManager.{flushDirtyLogs, shutdown} and the `flush-log` task of UnifiedLog.roll; Kafka
closes with num.recovery.threads.per.data.dir threads for each directory.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.errors import KafkaError
from ottla.storage.log.flush import SharedSync
from ottla.storage.log.partition_log import MOVE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from ottla.purgatory.pending import Pending
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.flush import FlushJob
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.checkpoint_queue import CheckpointQueue
    from ottla.storage.log_set.jobs import StorageJob
    from ottla.storage.log_set.table import LogTable
    from ottla.types import TopicPartition

MAX_FLUSHES = 128
"""Flushes at a time: each holds descriptors, and ten thousand logs may be due at once."""
LOGS_AT_ONCE: Final = 128
"""Logs that are being closed at a time: each holds descriptors until its job is done."""


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


class FlushQueue:
    """Logs with requested flushes, and the responses that wait for flushes."""

    def __init__(self, table: LogTable, checkpoints: CheckpointQueue) -> None:
        self._table = table
        self._checkpoints = checkpoints
        self._requested: dict[PartitionLog, None] = {}
        self._held: set[PartitionLog] = set()
        self.waits = table.flush_waits
        self.count_under_way = 0
        self._awaited_listeners: list[Callable[[PartitionLog], None]] = []

    def on_awaited(self, listener: Callable[[PartitionLog], None]) -> None:
        """Call listener(log) when a response waits for a flush: run what `take_one` returns soon.

        Without a listener the flush is one of the next `take`.
        """
        self._awaited_listeners.append(listener)

    def request(self, log: PartitionLog) -> None:
        """Request a flush, and a checkpoint when the log's start is not a segment's."""
        log_dir = self._table.directory_of(log)
        if log_dir is None:
            return
        self._requested[log] = None
        start = log.log_start_offset
        if start > log.segments[0].base_offset or (start and log.config.is_tiered):
            self._checkpoints.request(log_dir)

    def hold(self, log: PartitionLog) -> None:
        """Pause a log that is being exchanged; its requested flushes wait for `release`."""
        log.pause(MOVE)
        self._held.add(log)

    def release(self, log: PartitionLog) -> None:
        """Flush a log again, soon where a response waits for it."""
        log.resume(MOVE)
        self._held.discard(log)
        self.resume(log)

    def resume(self, log: PartitionLog) -> None:
        """Begin the flush that a response waits for: the job that prevented it is done."""
        if log in self.waits:
            self._awaited(log)

    def request_overdue(self, log: PartitionLog) -> None:
        """Request a flush that responses must wait for."""
        self.request(log)
        self.waits.overdue.append(log)

    def make_durable(self, log: PartitionLog) -> Pending[None]:
        """Flush a log soon, up to its end; the Pending fails as those of `wait_for_overdue`.

        Above MAX_FLUSHES it begins with a later `take`.
        """
        wait = self.waits.add(log)
        self.request(log)
        if self.count_under_way < MAX_FLUSHES:
            self._awaited(log)
        return wait

    def request_due(self, now_ms: int) -> None:
        """Request the flushes that are due by flush.ms or flush.messages."""
        for log in self._table:
            if log.flushes.is_due(now_ms):
                self.request(log)

    def wait_for_overdue(self) -> dict[TopicPartition, Pending[None]]:
        """Begin the flushes of the logs that reached flush.messages since the last call.

        The Pending of a log fails with KAFKA_STORAGE_ERROR when its disk does.
        """
        logs = list(self.waits.overdue)
        waits = self.waits.take()
        for log in logs:
            self._awaited(log)
        return waits

    def _awaited(self, log: PartitionLog) -> None:
        for listener in self._awaited_listeners:
            listener(log)

    def take(self, now_ms: int) -> list[StorageJob]:
        """Return the jobs of requested flushes; some may be left for the next call."""
        jobs: list[StorageJob] = []
        names: dict[LogDirectory, SharedSync] = {}
        for log in list(self._requested):
            if self.count_under_way >= MAX_FLUSHES:
                break
            if log.is_flushing or log in self._held:
                continue
            del self._requested[log]
            log_dir = self._table.directory_of(log)
            if log_dir is not None:
                shared = names.setdefault(log_dir, SharedSync(log_dir.directory))
                jobs.extend(self._begin(log, now_ms, names=shared))
        return jobs

    def take_one(self, log: PartitionLog, now_ms: int) -> list[StorageJob]:
        """Return the job that makes a log durable; none while one runs or when it is durable."""
        if not self._table.holds(log):
            self.waits.settle(log)
        elif not log.is_flushing and log not in self._held:
            self._requested.pop(log, None)
            return self._begin(log, now_ms)
        return []

    def take_whole(self, log: PartitionLog, now_ms: int) -> list[StorageJob]:
        """Return the job that makes a log durable up to its end, whether or not that is due."""
        if log.is_flushing or not self._table.holds(log):
            return []
        self._requested.pop(log, None)
        return self._begin(log, now_ms, is_whole=True)

    def _begin(
        self,
        log: PartitionLog,
        now_ms: int,
        *,
        is_whole: bool = False,
        names: SharedSync | None = None,
    ) -> list[StorageJob]:
        try:
            is_whole = is_whole or log in self.waits or log.flushes.is_due(now_ms)
            job = log.flushes.start(now_ms, is_whole=is_whole, names=names)
        except KafkaError as error:
            log_dir = self._table.directory_of(log)
            assert log_dir is not None
            self._table.fail(log_dir, error.__cause__)
            return []
        if job is not None:
            self.count_under_way += 1
            return [LogFlush(self._table, log, job, partial(self._completed, log))]
        self.waits.settle(log)
        return []

    def _completed(self, log: PartitionLog, may_go_on: bool) -> None:  # noqa: FBT001 - LogFlush calls it
        """Complete the waits for a finished flush, and continue for later appends."""
        self.count_under_way -= 1
        self.waits.settle(log)
        if may_go_on and log in self.waits:
            self._awaited(log)


class LogClosing:
    """Closes each log once; a directory whose log cannot be closed goes offline."""

    def __init__(self, table: LogTable) -> None:
        self._table = table
        self._closed: set[PartitionLog] = set()

    def batches(self, log_dir: LogDirectory) -> Iterator[list[StorageJob]]:
        """Close a directory's logs and yield their last jobs.

        A list must be done before the next is taken. No other job of a log may be under way.
        """
        logs = [log for log in self._table.logs_in(log_dir) if log not in self._closed]
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
