"""The checkpoint files of a node's log directories, as jobs.

Kafka: LogManager.{checkpointLogRecoveryOffsets, checkpointLogStartOffsets}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.directories.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.storage.log_set.jobs import CheckpointJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.jobs import StorageJob
    from ottla.storage.log_set.table import LogTable
    from ottla.types import TopicPartition


class CheckpointQueue:
    """Directories whose recovery points and log starts are to be written."""

    def __init__(self, table: LogTable) -> None:
        self._table = table
        self._requested: dict[str, LogDirectory] = {}
        self._stored: dict[TopicPartition, int] = {}
        """The recovery points in the files."""

    def request(self, log_dir: LogDirectory) -> None:
        """Request recovery-point and log-start checkpoints of one directory."""
        self._requested[log_dir.path] = log_dir

    def request_all(self) -> None:
        """Request recovery-point and log-start checkpoints of every directory."""
        for log_dir in self._table.online_directories:
            self.request(log_dir)

    def take(self) -> list[StorageJob]:
        """Return the jobs of requested checkpoints."""
        requested, self._requested = self._requested, {}
        return [self._job(log_dir) for log_dir in requested.values() if log_dir.is_online]

    def high_watermark_jobs(self) -> list[StorageJob]:
        """Return the jobs that write `replication-offset-checkpoint` in every directory."""
        return [self._high_watermark_job(log_dir) for log_dir in self._table.online_directories]

    def _high_watermark_job(self, log_dir: LogDirectory) -> CheckpointJob:
        logs = self._table.logs_in(log_dir)
        marks = {log.topic_partition: log.high_watermark for log in logs}
        return CheckpointJob(self, self._table, log_dir, {HIGH_WATERMARK_CHECKPOINT: marks})

    def _job(self, log_dir: LogDirectory) -> CheckpointJob:
        logs = self._table.logs_in(log_dir)
        recovery_points = {log.topic_partition: log.recovery_point for log in logs}
        starts = {
            log.topic_partition: log.log_start_offset
            for log in logs
            if log.log_start_offset > log.segments[0].base_offset
        }
        for partition, broken in self._table.broken.items():
            if broken.log_dir is log_dir:
                recovery_points[partition] = broken.recovery_point
                starts[partition] = broken.log_start_offset
        files = {RECOVERY_POINT_CHECKPOINT: recovery_points, LOG_START_CHECKPOINT: starts}
        return CheckpointJob(self, self._table, log_dir, files)

    def write_now(self, log_dir: LogDirectory) -> None:
        """Write the recovery-point and log-start checkpoints; waits for the disk."""
        self._requested.pop(log_dir.path, None)
        self._job(log_dir).run_now()

    def write_all_now(self, log_dir: LogDirectory) -> None:
        """Write all checkpoints of a directory; waits for the disk."""
        self.write_now(log_dir)
        self._high_watermark_job(log_dir).run_now()

    def write_pending_now(self, log_dir: LogDirectory) -> None:
        """Write the checkpoints when a request or a job for them is pending."""
        if log_dir.path in self._requested or log_dir.is_behind(RECOVERY_POINT_CHECKPOINT):
            self.write_now(log_dir)

    def recovery_point_lowered(self, log: PartitionLog) -> None:
        """Write the checkpoint at once when the stored or pending one is higher.

        KAFKA_STORAGE_ERROR without descriptors: the log must not be truncated then.
        """
        partition = log.topic_partition
        log_dir = self._table.log_dirs.get(partition)
        if log_dir is None:
            return
        stored = self._stored.get(partition, 0)
        if log.recovery_point < stored or log_dir.checkpoints_under_way:
            self.write_now(log_dir)
            if log_dir.is_online and log_dir.is_behind(RECOVERY_POINT_CHECKPOINT):
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"no descriptor was left to write a checkpoint in {log_dir.path} before "
                    f"{partition} is truncated",
                )

    def loaded(self, recovery_points: Mapping[TopicPartition, int]) -> None:
        """Record the recovery points that a start found in a file."""
        self._stored.update(recovery_points)

    def written(self, recovery_points: Mapping[TopicPartition, int]) -> None:
        """Record the content of a written recovery-point checkpoint."""
        for partition, offset in recovery_points.items():
            if partition in self._table.logs:
                self._stored[partition] = offset

    def forget(self, partition: TopicPartition) -> None:
        """Drop what is known of a deleted partition."""
        self._stored.pop(partition, None)
