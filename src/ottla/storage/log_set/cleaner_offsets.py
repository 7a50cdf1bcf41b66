"""The offsets up to which logs are clean: `cleaner-offset-checkpoint` in each directory.

Kafka: LogCleanerManager's checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.storage.layout import CLEANER_CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.checkpoint_queue import CheckpointQueue
    from ottla.storage.log_set.jobs import StorageJob
    from ottla.storage.log_set.table import LogTable
    from ottla.types import TopicPartition


class CleanerOffsets:
    """The clean offsets by log: a new topic of the same name is not clean.

    An offset is written when the names of the new segments are durable: a crash that brings back
    the old ones must not leave them taken for clean.
    """

    def __init__(self, table: LogTable, checkpoints: CheckpointQueue) -> None:
        self._table = table
        self._checkpoints = checkpoints
        self._offsets: dict[PartitionLog, int] = {}
        self._new: dict[PartitionLog, tuple[int, int]] = {}
        """Offsets that are not written yet, with the version of the log's names."""
        self._changed: dict[LogDirectory, None] = {}
        self._stored: dict[LogDirectory, Mapping[TopicPartition, int]] = {}

    def get(self, log: PartitionLog) -> int | None:
        """Return the offset up to which a log is clean, None when it never was cleaned."""
        new = self._new.get(log)
        return self._offsets.get(log) if new is None else new[0]

    def loaded(self, log_dir: LogDirectory, offsets: Mapping[TopicPartition, int]) -> None:
        """Take the content of a directory's file at start."""
        self._stored[log_dir] = offsets
        for log in self._table.logs_in(log_dir):
            if not log.is_future and log.topic_partition in offsets:
                self._offsets[log] = offsets[log.topic_partition]

    def cleaned(self, log: PartitionLog, offset: int) -> None:
        """Record that a log is clean up to an offset."""
        self._new[log] = (offset, log.names_version)

    def truncated(self, log: PartitionLog) -> None:
        """Follow a truncation, which has lowered the recovery point: nothing above it is clean."""
        offset = self.get(log)
        if offset is not None and offset > log.recovery_point:
            self._new.pop(log, None)
            self._set(log, log.recovery_point)

    def hand_over(self, old: PartitionLog, new: PartitionLog) -> None:
        """Transfer the clean offset to the log that replaces another one."""
        offset = self.get(old)
        if offset is not None:
            self.cleaned(new, offset)

    def _set(self, log: PartitionLog, offset: int) -> None:
        self._offsets[log] = offset
        log_dir = self._table.directory_of(log)
        if log_dir is not None:
            self._changed[log_dir] = None

    def take(self) -> list[StorageJob]:
        """Return the jobs that write the files whose content has changed."""
        for log, (offset, version) in list(self._new.items()):
            if log.durable_names_version >= version or not self._table.holds(log):
                del self._new[log]
                self._set(log, offset)
        self._forget_deleted()
        changed, self._changed = self._changed, {}
        return [self._job(log_dir) for log_dir in changed if log_dir.is_online]

    def _forget_deleted(self) -> None:
        table = self._table
        for log in [log for log in self._offsets if not table.holds(log)]:
            del self._offsets[log]
        for log_dir, stored in self._stored.items():
            if any(table.log_dirs.get(partition) is not log_dir for partition in stored):
                self._changed[log_dir] = None

    def _job(self, log_dir: LogDirectory) -> StorageJob:
        offsets = {
            log.topic_partition: self._offsets[log]
            for log in self._table.logs_in(log_dir)
            if log in self._offsets
        }
        self._stored[log_dir] = offsets
        return self._checkpoints.job_of(log_dir, CLEANER_CHECKPOINT, offsets)
