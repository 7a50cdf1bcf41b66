"""Background disk work of a node's logs: flushes, checkpoints, removals.

Each job has `run`, for a worker, and `done`, for the node's loop.

Kafka: the background tasks of kafka.log.LogManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.directories.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.storage.log_set.jobs import CheckpointJob, LogFlush, RemovalJob, SegmentRemovalJob
from ottla.storage.log_set.table import LogTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.purgatory.pending import Pending
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.jobs import Removal, StorageJob
    from ottla.types import TopicPartition

MAX_FLUSHES = 128
"""Flushes at a time: each holds descriptors, and ten thousand logs may be due at once."""
MAX_REMOVALS = 512
"""Logs whose deleted segments' files are removed in one call."""


class LogMaintenance(LogTable):
    """Hands out the disk work of logs as jobs."""

    def take_jobs(self, now_ms: int = 0) -> list[StorageJob]:
        """Return the pending disk work: run each job in a worker, then `done`.

        Some flushes may be left for the next call. flush.ms counts from now_ms on.
        """
        jobs: list[StorageJob] = []
        for partition, log in list(self._wanting_flush.items()):
            if self.flushes_under_way >= MAX_FLUSHES:
                break
            if log.is_flushing or self._wanting_flush.pop(partition, None) is None:
                continue  # or its directory went offline with a preceding log
            jobs.extend(self._begin_flush(log, now_ms))
        jobs.extend(self._checkpoint_job(log_dir) for log_dir in self._wanting_checkpoint.values())
        self._wanting_checkpoint.clear()
        return jobs

    # Flushes

    def _want_flush(self, log: PartitionLog) -> None:
        partition = log.topic_partition
        if self._logs.get(partition) is not log:
            return
        self._wanting_flush[partition] = self._logs[partition]
        if log.log_start_offset > log.segments[0].base_offset:
            self._wanting_checkpoint[self._log_dirs[partition].path] = self._log_dirs[partition]

    def _flush_overdue(self, log: PartitionLog) -> None:
        self._want_flush(log)
        self.flush_waits.overdue.append(log)

    def want_due_flushes(self, now_ms: int) -> None:
        """Request the flushes that are due by flush.ms or flush.messages."""
        for log in self._logs.values():
            if log.flushes.is_due(now_ms):
                self._want_flush(log)

    def await_flushes(self) -> dict[TopicPartition, Pending[None]]:
        """Request flushes of the logs that reached flush.messages since the last call.

        The Pending of a log fails with KAFKA_STORAGE_ERROR when its disk does.
        """
        logs = list(self.flush_waits.overdue)
        waits = self.flush_waits.take()
        for log in logs:
            self.on_flush_awaited(log)
        return waits

    def take_flush(self, log: PartitionLog, now_ms: int) -> list[StorageJob]:
        """Return the job that makes a log durable; none while one runs or when it is durable."""
        found = self._logs.get(log.topic_partition)
        if found is not log:
            self.flush_waits.settle(log)
        elif not found.is_flushing:
            self._wanting_flush.pop(found.topic_partition, None)
            return self._begin_flush(found, now_ms)
        return []

    def _begin_flush(self, log: PartitionLog, now_ms: int) -> list[StorageJob]:
        try:
            is_whole = log in self.flush_waits or log.flushes.is_due(now_ms)
            job = log.flushes.start(now_ms, is_whole=is_whole)
        except KafkaError as error:
            self.fail(self._log_dirs[log.topic_partition], error.__cause__)
            return []
        if job is not None:
            return [LogFlush(self, log, job)]
        self.flush_waits.settle(log)
        return []

    def flush_done(self, log: PartitionLog, *, may_go_on: bool) -> None:
        """Complete the waits for it, and continue for later appends."""
        self.flush_waits.settle(log)
        if may_go_on and log in self.flush_waits:
            self.on_flush_awaited(log)

    # Checkpoints

    def want_checkpoint(self, log_dir: LogDirectory) -> None:
        """Request recovery-point and log-start checkpoints of one directory."""
        self._wanting_checkpoint[log_dir.path] = log_dir

    def checkpoint_recovery_points(self) -> None:
        """Request recovery-point and log-start checkpoints of every directory."""
        for log_dir in self.online_directories:
            self._wanting_checkpoint[log_dir.path] = log_dir

    def _checkpoint_job(self, log_dir: LogDirectory) -> CheckpointJob:
        logs = self._logs_in(log_dir)
        recovery_points = {log.topic_partition: log.recovery_point for log in logs}
        starts = {
            log.topic_partition: log.log_start_offset
            for log in logs
            if log.log_start_offset > log.segments[0].base_offset
        }
        for partition, broken in self.broken.items():
            if broken.log_dir is log_dir:
                recovery_points[partition] = broken.recovery_point
                starts[partition] = broken.log_start_offset
        return CheckpointJob(
            self,
            log_dir,
            {RECOVERY_POINT_CHECKPOINT: recovery_points, LOG_START_CHECKPOINT: starts},
        )

    def _checkpoint_now(self, log_dir: LogDirectory) -> None:
        self._wanting_checkpoint.pop(log_dir.path, None)
        self._checkpoint_job(log_dir).run_now()

    def _recovery_point_lowered(self, log: PartitionLog) -> None:
        """Write the checkpoint at once when the stored or pending one is higher.

        KAFKA_STORAGE_ERROR without descriptors: the log must not be truncated then.
        """
        partition = log.topic_partition
        log_dir = self._log_dirs.get(partition)
        if log_dir is None:
            return
        stored = self._checkpointed.get(partition, 0)
        if log.recovery_point < stored or log_dir.checkpoints_under_way:
            self._checkpoint_now(log_dir)
            if log_dir.is_online and log_dir.is_behind(RECOVERY_POINT_CHECKPOINT):
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"no descriptor was left to write a checkpoint in {log_dir.path} before "
                    f"{partition} is truncated",
                )

    def checkpoint_written(self, recovery_points: Mapping[TopicPartition, int]) -> None:
        """Record the content of the recovery-point checkpoint."""
        for partition, offset in recovery_points.items():
            if partition in self._logs:
                self._checkpointed[partition] = offset

    def high_watermark_jobs(self) -> list[StorageJob]:
        """Return the jobs that write `replication-offset-checkpoint` in every directory."""
        return [self._high_watermark_job(log_dir) for log_dir in self.online_directories]

    def _high_watermark_job(self, log_dir: LogDirectory) -> CheckpointJob:
        marks = {log.topic_partition: log.high_watermark for log in self._logs_in(log_dir)}
        return CheckpointJob(self, log_dir, {HIGH_WATERMARK_CHECKPOINT: marks})

    # Removals

    def segments_deleted(self, log: PartitionLog) -> None:
        """Record that a log has deleted segments whose files must be removed."""
        if self._logs.get(log.topic_partition) is log:
            self._with_deleted_segments[log.topic_partition] = log

    @property
    def is_holding_back(self) -> bool:
        """Whether the last check left segments that are due only because of a clock jump."""
        return any(log.held_back_count for log in self._logs.values())

    def remove_due(self, now_ms: int) -> list[StorageJob]:
        """Return the jobs that remove what was deleted file.delete.delay.ms ago.

        Some segments may be left for the next call.
        """
        due = [entry for entry in self._removals if entry.is_due(now_ms)]
        self._removals = [entry for entry in self._removals if not entry.is_due(now_ms)]
        jobs: list[StorageJob] = [RemovalJob(self, one) for one in due if one.log_dir.is_online]
        return jobs + self._remove_due_segments(now_ms)

    def remove_later(self, removal: Removal) -> None:
        """Retry a failed removal later."""
        self._removals.append(removal)

    def _remove_due_segments(self, now_ms: int) -> list[StorageJob]:
        jobs: list[StorageJob] = []
        for partition, log in list(self._with_deleted_segments.items()):
            if len(jobs) >= MAX_REMOVALS:
                break
            paths = [
                path
                for segment in log.truncation.take_removable(now_ms)
                for path in segment.let_go()
            ]
            if paths:
                jobs.append(SegmentRemovalJob(self, self._log_dirs[partition], paths))
            if not log.truncation.has_deleted_segments:
                del self._with_deleted_segments[partition]
        return jobs
