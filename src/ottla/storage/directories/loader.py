"""Loading the logs of one log directory at startup.

Kafka: LogManager.loadLogs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.errors import CorruptMessage
from ottla.storage.directories.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.storage.directories.partition_dir_names import (
    DELETE_SUFFIX,
    future_partition_of,
    partition_of,
    read_topic_id,
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
        """is_stray(log) is called in the worker for each log that has a topic id."""
        self.log_dir = log_dir
        self._config_for = config_for
        self._now_ms = now_ms
        self._events = events
        self._is_stray = is_stray
        self.error: BaseException | None = None
        self.logs: list[PartitionLog] = []
        """Those that were opened, also future ones."""
        self.strays: set[FoundLog] = set()
        """Those of them, and of the broken ones, that the node should not have."""
        self.deleted: list[str] = []
        """Directories of deleted partitions, to be removed."""
        self.broken: dict[TopicPartition, BrokenLog] = {}
        self.broken_futures: dict[TopicPartition, BrokenLog] = {}
        self.recovery_points: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}

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
        self._high_watermarks = log_dir.read_offsets(HIGH_WATERMARK_CHECKPOINT)
        for log in self._open_all():
            self.logs.append(log)
            if log.topic_id is None or self._is_stray(log):
                self.strays.add(log)
        self.strays.update(
            broken
            for broken in self.broken.values()
            if self._is_stray(broken) and broken.topic_id is not None
        )

    def done(self, error: BaseException | None) -> None:
        """Close what was opened if the directory cannot be loaded."""
        self.error = error
        if error is not None:
            for log in self.logs:
                log.release()

    def _open_all(self) -> Iterator[PartitionLog]:
        directory = self.log_dir.directory
        for name in directory.list():
            if not directory.is_directory(name):
                continue
            if name.endswith(DELETE_SUFFIX):
                self.deleted.append(name)
                continue
            partition = partition_of(name) or future_partition_of(name)
            if partition is None or partition.topic == METADATA_TOPIC:
                continue
            log = self._open(partition, name)
            if log is not None:
                log.update_high_watermark(self._high_watermarks.get(partition, 0))
                yield log

    def _open(self, partition: TopicPartition, name: str) -> PartitionLog | None:
        log_dir = self.log_dir
        topic_id = read_topic_id(log_dir.directory, name)
        recovery_point = self.recovery_points.get(partition, 0)
        log_start_offset = self.log_starts.get(partition, 0)
        try:
            return PartitionLog.open(
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
            )
        except CorruptMessage as error:
            found = self.broken if name == str(partition) else self.broken_futures
            found[partition] = BrokenLog(
                partition, topic_id, log_dir, error, recovery_point, log_start_offset, name
            )
            return None
