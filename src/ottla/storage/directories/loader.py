"""Loading the logs of one log directory at startup.

Kafka: LogManager.loadLogs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.errors import CorruptMessage, LocalDiskError
from ottla.storage.directories.partition_dir_names import (
    future_partition_of,
    has_only_files_of_logs,
    is_deleted_log,
    is_log,
    partition_of,
    read_topic_id,
)
from ottla.storage.directory import join
from ottla.storage.layout import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.storage.log.partition_log import PartitionLog
from ottla.types import METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.directory import Directory
    from ottla.storage.log.config import LogConfig
    from ottla.storage.log.events import LogEvents
    from ottla.types import TopicPartition, Uuid


log = logging.getLogger("ottla.storage")
_MAX_NAMES = 20
"""Directories of others that are named in one line."""


class FoundLog(Protocol):
    """The identity of a log found on disk, whether or not it could be opened."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""

    @property
    def topic_id(self) -> Uuid | None:
        """The topic id; None when it cannot be read."""

    @property
    def directory(self) -> Directory:
        """The root of its log directory."""

    @property
    def name(self) -> str:
        """The name of its directory in there."""


class BrokenLog(NamedTuple):
    """A log whose flushed bytes are damaged: neither served nor cut; an operator decides."""

    topic_partition: TopicPartition
    topic_id: Uuid | None
    log_dir: LogDirectory
    error: CorruptMessage
    recovery_point: int
    """From the checkpoint: bytes below it are never truncated by recovery."""
    log_start_offset: int
    name: str
    """Of its directory in the log directory."""

    def __str__(self) -> str:
        return (
            f"The log of {self.topic_partition} in {self.log_dir.path} is damaged: "
            f"{self.error}. Stop the node and see what can be kept: ottla log-repair --log-dir "
            f"{self.log_dir.path} --partition {self.topic_partition}"
        )

    @property
    def directory(self) -> Directory:
        """The root of its log directory."""
        return self.log_dir.directory


class StrayLog(NamedTuple):
    """A log that the node should not have: it is renamed as it is, and not opened."""

    topic_partition: TopicPartition
    topic_id: Uuid | None
    directory: Directory
    name: str


class LoadProgress:
    """How far the load of a directory is: plain numbers of its worker, for any thread."""

    __slots__ = ("log_count", "opened_count", "path", "segment_count")

    def __init__(self, path: str) -> None:
        self.path = path
        self.log_count = 0
        """Logs that were found; 0 until they are counted."""
        self.opened_count = 0
        """Logs that need no more work, whether they are open, damaged or strays."""
        self.segment_count = 0
        """Segments of the log that is being recovered, still to be read."""

    @property
    def remaining_count(self) -> int:
        """Logs that are still to be opened."""
        return self.log_count - self.opened_count


class DirectoryLoader:
    """Opens the logs of one directory, as a job for a worker; the log set takes them afterwards."""

    def __init__(
        self,
        log_dir: LogDirectory,
        config_for: Callable[[str], LogConfig],
        now_ms: int,
        events: LogEvents,
        is_stray: Callable[[FoundLog], bool],
    ) -> None:
        """is_stray(log) is called for logs with a topic id: in the worker, and when it is taken."""
        self.log_dir = log_dir
        self._config_for = config_for
        self._now_ms = now_ms
        self._events = events
        self.is_stray = is_stray
        self.progress = LoadProgress(log_dir.path)
        self._is_cancelled = False
        self.error: BaseException | None = None
        self.logs: list[PartitionLog] = []
        """Those that were opened, also future ones."""
        self.strays: list[StrayLog] = []
        """Logs that the node should not have; none of them is opened."""
        self.unidentified: set[PartitionLog] = set()
        """Opened logs without records and topic id: power failed while they were created."""
        self.deleted: list[str] = []
        """Directories of deleted partitions, to be removed."""
        self.broken: dict[TopicPartition, BrokenLog] = {}
        self.broken_futures: dict[TopicPartition, BrokenLog] = {}
        self.recovery_points: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}

    @property
    def volume(self) -> Hashable:
        """The volume whose disk it waits for."""
        return self.log_dir.directory.volume

    @property
    def checkpointed(self) -> set[TopicPartition]:
        """The partitions that the checkpoints name, whether their logs are there or not."""
        return {*self.recovery_points, *self.log_starts}

    def run(self) -> None:
        """Open the directory and its logs; OSError when the disk fails."""
        log_dir = self.log_dir
        log_dir.open()
        self.recovery_points = log_dir.read_offsets(RECOVERY_POINT_CHECKPOINT)
        self.cleaner_offsets = log_dir.read_offsets(CLEANER_CHECKPOINT)
        self.log_starts = log_dir.read_offsets(LOG_START_CHECKPOINT)
        self.high_watermarks = log_dir.read_offsets(HIGH_WATERMARK_CHECKPOINT)
        self.logs.extend(self._open_all())

    def cancel(self) -> None:
        """Let `run` end soon, with an error: recovery may take longer than a stop may."""
        self._is_cancelled = True

    def _remaining_segments(self, count: int) -> None:
        self.progress.segment_count = count
        if count:
            self._check_cancelled()

    def _check_cancelled(self) -> None:
        if self._is_cancelled:
            raise LocalDiskError(f"the load of {self.log_dir.path} was cancelled")

    def done(self, error: BaseException | None) -> None:
        """Close what was opened if the directory cannot be loaded."""
        self.error = error
        if error is not None:
            for log in self.logs:
                log.release()

    def _open_all(self) -> Iterator[PartitionLog]:
        directory, progress = self.log_dir.directory, self.progress
        others = []
        partitions = list(self._find_partitions())
        progress.log_count = len(partitions)
        for number, (name, partition) in enumerate(partitions):
            progress.opened_count = number
            self._check_cancelled()
            if not is_log(directory, name):
                others += [name] if directory.list(name) else []
                continue
            found = StrayLog(partition, read_topic_id(directory, name), directory, name)
            if self._must_be_set_aside(found):
                self.strays.append(found)
                continue
            log = self._open(found)
            if log is not None:
                log.update_high_watermark(self.high_watermarks.get(partition, 0))
                yield log
        progress.opened_count = len(partitions)
        if others:
            self._report_others(others)

    def _find_partitions(self) -> Iterator[tuple[str, TopicPartition]]:
        """Yield the directories with names of logs; deleted ones are noted."""
        directory = self.log_dir.directory
        for name in directory.list():
            if not directory.is_directory(name):
                continue
            if is_deleted_log(name):
                self.deleted.append(name)
                continue
            partition = partition_of(name) or future_partition_of(name)
            if partition is not None and partition.topic != METADATA_TOPIC:
                yield name, partition

    def _must_be_set_aside(self, found: StrayLog) -> bool:
        """Whether the node should not have a log; decided before it is opened, which may cut it."""
        if found.topic_id is not None:
            return self.is_stray(found)
        if partition_of(found.name) is None:
            return False  # a copy, which begins again
        names = found.directory.list(found.name)
        return not has_only_files_of_logs(names) or any(
            found.directory.size(join(found.name, name)) > 0
            for name in names
            if name.endswith(LOG_SUFFIX)
        )

    def _report_others(self, names: list[str]) -> None:
        more = f" and {len(names) - _MAX_NAMES} others" if len(names) > _MAX_NAMES else ""
        log.warning(
            "%s has directories that are named as partitions and hold no logs: %s%s; they are left "
            "alone: move them out of the log directory",
            self.log_dir.path,
            ", ".join(names[:_MAX_NAMES]),
            more,
            extra={"event": "directory.ignored"},
        )

    def _open(self, found: StrayLog) -> PartitionLog | None:
        log_dir = self.log_dir
        partition, topic_id, _, name = found
        recovery_point = self.recovery_points.get(partition, 0)
        log_start_offset = self.log_starts.get(partition, 0)
        try:
            opened = PartitionLog.open(
                log_dir.directory,
                name,
                topic_partition=partition,
                topic_id=topic_id,
                config=self._config_for(partition.topic),
                now_ms=self._now_ms,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                clean=log_dir.had_clean_shutdown,
                events=self._events,
                on_remaining_segments=self._remaining_segments,
            )
        except CorruptMessage as error:
            broken = self.broken if name == str(partition) else self.broken_futures
            broken[partition] = BrokenLog(
                partition, topic_id, log_dir, error, recovery_point, log_start_offset, name
            )
            return None
        if topic_id is None and not opened.is_future:
            self.unidentified.add(opened)
        return opened
