"""The logs of a node by partition, with their directories: the state of a log set.

Kafka: the state of kafka.log.LogManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.log.flush_waits import FlushWaits
from ottla.storage.producers.count import ProducerCount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.storage.directories.loader import BrokenLog
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.types import TopicPartition


class LogTable:
    """Logs by partition; a directory that fails is removed with its logs."""

    def __init__(self, directories: list[LogDirectory], max_producers: int) -> None:
        self.directories = directories
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.log_dirs: dict[TopicPartition, LogDirectory] = {}
        self.broken: dict[TopicPartition, BrokenLog] = {}
        """Logs whose flushed bytes are damaged: neither served nor cut; an operator decides."""
        self.flush_waits = FlushWaits()
        self.producers = ProducerCount(max_producers)
        """Counts the producers of all logs."""

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self.logs.values()))

    def holds(self, log: PartitionLog) -> bool:
        """Whether the log is the partition's, not deleted and not in an offline directory."""
        return self.logs.get(log.topic_partition) is log

    @property
    def online_directories(self) -> list[LogDirectory]:
        """The directories without a disk error."""
        return [log_dir for log_dir in self.directories if log_dir.is_online]

    def logs_in(self, log_dir: LogDirectory) -> list[PartitionLog]:
        """Return the logs of one directory."""
        return [log for partition, log in self.logs.items() if self.log_dirs[partition] is log_dir]

    def add(self, log_dir: LogDirectory, log: PartitionLog) -> None:
        """Add an opened log."""
        self.logs[log.topic_partition] = log
        self.log_dirs[log.topic_partition] = log_dir
        log.producer_state.count_in(self.producers)

    def remove(self, log: PartitionLog) -> LogDirectory:
        """Remove a log; return its directory. The caller settles its flush waits."""
        del self.logs[log.topic_partition]
        log.producer_state.count_in(ProducerCount())
        return self.log_dirs.pop(log.topic_partition)

    def fail(self, log_dir: LogDirectory, error: BaseException | None) -> list[TopicPartition]:
        """Put a directory offline; return its partitions.

        Does nothing when only file descriptors ran out.
        """
        if is_exhaustion(error):
            return []
        if log_dir.failure is None:
            log_dir.failure = error if isinstance(error, OSError) else OSError(str(error))
        lost = self.logs_in(log_dir)
        for log in lost:
            log.failure = log.failure or log_dir.failure
            log.release()
            self.remove(log)
        for log in lost:
            self.flush_waits.settle(log)
        return [log.topic_partition for log in lost]
