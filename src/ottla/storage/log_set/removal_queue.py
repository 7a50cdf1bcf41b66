"""The removal of deleted partitions and segments, as jobs.

Kafka: LogManager.deleteLogs, LocalLog.deleteSegmentFiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.storage.log_set.jobs import RemovalJob, SegmentRemovalJob

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.jobs import Removal, StorageJob
    from ottla.storage.log_set.table import LogTable
    from ottla.types import TopicPartition

MAX_REMOVALS = 512
"""Logs whose deleted segments' files are removed in one call."""


class RemovalQueue:
    """Directories and segments that wait until file.delete.delay.ms is over."""

    def __init__(self, table: LogTable) -> None:
        self._table = table
        self._removals: list[Removal] = []
        self._with_deleted_segments: dict[TopicPartition, PartitionLog] = {}

    def add(self, removal: Removal) -> None:
        """Add a deleted partition's directory, or one whose removal must be retried."""
        self._removals.append(removal)

    def segments_deleted(self, log: PartitionLog) -> None:
        """Record that a log has deleted segments whose files must be removed."""
        if self._table.holds(log):
            self._with_deleted_segments[log.topic_partition] = log

    def take_due(self, now_ms: int) -> list[StorageJob]:
        """Return the jobs that remove what was deleted file.delete.delay.ms ago.

        Some segments may be left for the next call.
        """
        due = [entry for entry in self._removals if entry.is_due(now_ms)]
        self._removals = [entry for entry in self._removals if not entry.is_due(now_ms)]
        jobs: list[StorageJob] = [
            RemovalJob(self, self._table, one) for one in due if one.log_dir.is_online
        ]
        return jobs + self._take_segments(now_ms)

    def _take_segments(self, now_ms: int) -> list[StorageJob]:
        jobs: list[StorageJob] = []
        for partition, log in list(self._with_deleted_segments.items()):
            if len(jobs) >= MAX_REMOVALS:
                break
            if not self._table.holds(log):  # they are removed with the partition's directory
                del self._with_deleted_segments[partition]
                continue
            paths = [
                path
                for segment in log.truncation.take_removable(now_ms)
                for path in segment.let_go()
            ]
            if paths:
                log_dir = self._table.log_dirs[partition]
                jobs.append(SegmentRemovalJob(self._table, log_dir, paths))
            if not log.truncation.has_deleted_segments:
                del self._with_deleted_segments[partition]
        return jobs
