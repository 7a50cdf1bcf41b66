"""Adds the logs that a start found in the log directories to a log set.

Workers load the directories (`storage/directories/loader.py`); only the owner's thread changes the
set. Strays are marked, and of two logs of a partition the one is kept that the metadata name.
Kafka: LogManager.loadLogs, LogManager.loadLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import LocalDiskError
from ottla.storage.directories.partition_dir_names import marked_topic
from ottla.storage.log_set.removal_queue import Removal

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.purgatory.work import Work
    from ottla.storage.directories.loader import DirectoryLoader, FoundLog
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.log_set import LogSet
    from ottla.types import Uuid


class LoadedLogs:
    """Takes the logs of loaded directories into a log set."""

    def __init__(
        self, logs: LogSet, now_ms: int, assigned: Callable[[FoundLog], Uuid | None]
    ) -> None:
        """assigned(log) returns the id of the directory in which the metadata have a log."""
        self._logs = logs
        self._now_ms = now_ms
        self._assigned = assigned
        self.outdated: list[LogDirectory] = []
        """Directories whose checkpoints must be written."""

    def take(self, loader: DirectoryLoader) -> Work[None]:
        """Take the logs, strays and checkpoints of a directory; none after it has failed."""
        log_dir = loader.log_dir
        for number, log in enumerate(loader.logs):
            if not log_dir.is_online:
                for rest in loader.logs[number:]:
                    rest.release()
                return
            try:
                self._take(loader, log)
            except OSError as error:
                self._logs.fail_at_start(log_dir, error)
            yield
        if self._take_rest(loader):
            self.outdated.append(loader.log_dir)

    def _take(self, loader: DirectoryLoader, log: PartitionLog) -> None:
        log_dir = loader.log_dir
        if log.topic_id is not None and loader.is_stray(log):  # its topic was deleted meanwhile
            log.release()
            self._logs.mark_stray(log)
        elif log.is_future and log.topic_id is None:
            self._logs.futures.found(log_dir, log, self._now_ms)
        elif log in loader.unidentified:
            self._logs.retire(log, log_dir, self._now_ms)
        elif log.is_future:
            self._logs.futures.found(log_dir, log, self._now_ms)
        elif log.topic_partition in self._logs.table.logs:
            if self._logs.is_loaded:  # the replica came back to this broker while it was offline
                self._logs.retire(log, log_dir, self._now_ms)
                return
            self._add_second(log_dir, log, self._assigned(log))
        else:
            self._logs.table.add(log_dir, log)

    def _take_rest(self, loader: DirectoryLoader) -> bool:
        """Take what else a directory has; return whether its checkpoints must be written."""
        log_dir = loader.log_dir
        if not log_dir.is_online:
            return False
        self._logs.futures.found_broken(loader.broken_futures)
        self._logs.broken.update(loader.broken)
        for stray in loader.strays:
            try:
                self._logs.mark_stray(stray)
            except OSError as error:
                self._logs.fail_at_start(log_dir, error)
                return False
        for name in loader.deleted:
            delay_ms = self._logs.config_for(marked_topic(name)).file_delete_delay_ms
            self._logs.removals.add(Removal(self._now_ms + delay_ms, log_dir, name))
        self._logs.checkpoints.loaded(
            log_dir, loader.recovery_points, loader.log_starts, loader.high_watermarks
        )
        self._logs.cleaner_offsets.loaded(log_dir, loader.cleaner_offsets)
        return bool(loader.strays) or self._is_checkpoint_untrue(log_dir, loader)

    def _is_checkpoint_untrue(self, log_dir: LogDirectory, loader: DirectoryLoader) -> bool:
        """Whether the checkpoint has points above the data: later bytes would count as flushed."""
        logs = self._logs.table.logs_in(log_dir)
        held = {log.topic_partition for log in logs} | {*self._logs.broken}
        points = loader.recovery_points
        return not loader.checkpointed <= held or any(
            log.recovery_point < points.get(log.topic_partition, 0) for log in logs
        )

    def _add_second(self, log_dir: LogDirectory, log: PartitionLog, assigned: Uuid | None) -> None:
        """Keep the log that the metadata name: power failed while a moved replica was exchanged.

        The exchange renames a log in each of two directories, and one of the names was lost.
        """
        partition = log.topic_partition
        first, first_dir = self._logs.table.logs[partition], self._logs.table.log_dirs[partition]
        if assigned is None or assigned not in (log_dir.directory_id, first_dir.directory_id):
            raise LocalDiskError(
                f"Duplicate log directories found for {partition}: "
                f"{first_dir.path} and {log_dir.path}",
            )
        if first_dir.directory_id != assigned:
            self._logs.table.remove(first)
            self._logs.table.add(log_dir, log)
            log, log_dir = first, first_dir
        self._logs.retire(log, log_dir, self._now_ms)
