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
        self.returning: set[LogDirectory] = set()
        """Directories that are online again and whose logs are still being taken: checkpoints of
        those that are there would lose the others."""
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.log_dirs: dict[TopicPartition, LogDirectory] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        """Future logs (KIP-113)."""
        self.future_dirs: dict[TopicPartition, LogDirectory] = {}
        self.broken: dict[TopicPartition, BrokenLog] = {}
        """Logs whose flushed bytes are damaged: neither served nor cut; an operator decides."""
        self.flush_waits = FlushWaits()
        self.producers = ProducerCount(max_producers)
        """Counts the producers of all logs."""
        self._by_directory: dict[LogDirectory, dict[PartitionLog, None]] = {
            log_dir: {} for log_dir in directories
        }

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self.logs.values()))

    def holds(self, log: PartitionLog) -> bool:
        """Whether the log is the partition's, not deleted and not in an offline directory."""
        partition = log.topic_partition
        return self.logs.get(partition) is log or self.futures.get(partition) is log

    def directory_of(self, log: PartitionLog) -> LogDirectory | None:
        """Return the directory of a log that is held: a partition's own, or its future one."""
        partition = log.topic_partition
        if self.logs.get(partition) is log:
            return self.log_dirs[partition]
        return self.future_dirs[partition] if self.futures.get(partition) is log else None

    @property
    def online_directories(self) -> list[LogDirectory]:
        """The directories without a disk error."""
        return [log_dir for log_dir in self.directories if log_dir.is_online]

    def logs_in(self, log_dir: LogDirectory) -> list[PartitionLog]:
        """Return the logs of one directory, also the future ones."""
        return list(self._by_directory[log_dir])

    def add(self, log_dir: LogDirectory, log: PartitionLog) -> None:
        """Add an opened log."""
        self.logs[log.topic_partition] = log
        self.log_dirs[log.topic_partition] = log_dir
        self._by_directory[log_dir][log] = None
        log.producer_state.count_in(self.producers)

    def add_future(self, log_dir: LogDirectory, log: PartitionLog) -> None:
        """Add an opened future log; its producers are counted once it is the partition's."""
        self.futures[log.topic_partition] = log
        self.future_dirs[log.topic_partition] = log_dir
        self._by_directory[log_dir][log] = None

    def remove(self, log: PartitionLog) -> LogDirectory:
        """Remove a log; return its directory. The caller settles its flush waits."""
        partition = log.topic_partition
        if self.futures.get(partition) is log:
            del self.futures[partition]
            log_dir = self.future_dirs.pop(partition)
        else:
            del self.logs[partition]
            log.producer_state.count_in(ProducerCount())
            log_dir = self.log_dirs.pop(partition)
        del self._by_directory[log_dir][log]
        return log_dir

    def fail(self, log_dir: LogDirectory, error: BaseException | None) -> list[TopicPartition]:
        """Put a directory offline; return the partitions of its logs, also of future ones.

        Does nothing when only file descriptors ran out.
        """
        if is_exhaustion(error):
            return []
        log_dir.failed(error if isinstance(error, OSError) else OSError(str(error)))
        lost = self.logs_in(log_dir)
        for log in lost:
            log.fail(log.failure or log_dir.failure)
            log.release()
            self.remove(log)
        for log in lost:
            self.flush_waits.settle(log)
        return [log.topic_partition for log in lost]
