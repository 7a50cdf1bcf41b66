"""The logs of a node by partition, their directories, and pending maintenance.

Kafka: the state of kafka.log.LogManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.log.flush_waits import FlushWaits
from ottla.storage.producers.count import ProducerCount

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from ottla.storage.directories.loader import BrokenLog
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.directories.partition_dir_names import RandomBits
    from ottla.storage.log.config import LogConfig
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.jobs import Removal
    from ottla.types import TopicPartition


class LogTable:
    """Logs by partition; a directory that fails is removed with its logs."""

    def __init__(
        self,
        directories: list[LogDirectory],
        *,
        config_for: Callable[[str], LogConfig],
        rng: RandomBits,
    ) -> None:
        self.directories = directories
        self.is_closed = False
        self.cordoned: Collection[str] = frozenset()
        """Paths of directories that get no new logs while another one is available."""
        self.broken: dict[TopicPartition, BrokenLog] = {}
        """Logs whose flushed bytes are damaged: neither served nor cut; an operator decides."""
        self.withheld: set[TopicPartition] = set()
        """Partitions without a log because theirs may be in an offline directory."""
        self.flush_waits = FlushWaits()
        self.on_flush_awaited: Callable[[PartitionLog], None] = _nobody
        """Called when a response waits for a log's flush: run what `take_flush` returns soon."""
        self._config_for = config_for
        self._rng = rng
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._log_dirs: dict[TopicPartition, LogDirectory] = {}
        self._wanting_flush: dict[TopicPartition, PartitionLog] = {}
        self.flushes_under_way = 0
        self._wanting_checkpoint: dict[str, LogDirectory] = {}
        self._removals: list[Removal] = []
        self._with_deleted_segments: dict[TopicPartition, PartitionLog] = {}
        self._checkpointed: dict[TopicPartition, int] = {}
        self.producers = ProducerCount()
        """Counts the producers of all logs."""

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """Return the log; None when it does not exist or its directory is offline."""
        return self._logs.get(partition)

    def log_dir_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the log directory that holds the partition."""
        return self._log_dirs.get(partition)

    @property
    def online_directories(self) -> list[LogDirectory]:
        """The directories without a disk error."""
        return [log_dir for log_dir in self.directories if log_dir.is_online]

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch of the last clean shutdown, -1 unless all directories agree (KIP-966)."""
        epochs = {log_dir.previous_broker_epoch for log_dir in self.directories}
        return epochs.pop() if len(epochs) == 1 else -1

    def _logs_in(self, log_dir: LogDirectory) -> list[PartitionLog]:
        return [
            log for partition, log in self._logs.items() if self._log_dirs[partition] is log_dir
        ]

    def fail(self, log_dir: LogDirectory, error: BaseException | None) -> list[TopicPartition]:
        """Put a directory offline; return its partitions.

        Does nothing when only file descriptors ran out.
        """
        if is_exhaustion(error):
            return []
        if log_dir.failure is None:
            log_dir.failure = error if isinstance(error, OSError) else OSError(str(error))
        partitions = [partition for partition, place in self._log_dirs.items() if place is log_dir]
        lost = [self._logs.pop(partition) for partition in partitions]
        for log in lost:
            log.producer_state.count_in(ProducerCount())
            log.failure = log.failure or log_dir.failure
            log.release()
            del self._log_dirs[log.topic_partition]
            self._forget(log.topic_partition)
        self._removals = [entry for entry in self._removals if entry.log_dir is not log_dir]
        self._wanting_checkpoint.pop(log_dir.path, None)
        for log in lost:
            self.flush_waits.settle(log)
        return partitions

    def _forget(self, partition: TopicPartition) -> None:
        self._wanting_flush.pop(partition, None)
        self._with_deleted_segments.pop(partition, None)
        self._checkpointed.pop(partition, None)


def _nobody(_log: PartitionLog) -> None:
    """Stand in for an owner who asks `take_jobs` now and then."""
