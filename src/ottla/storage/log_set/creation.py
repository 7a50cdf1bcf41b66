"""Creation of the logs of many partitions in workers: each new file may wait for the disk.

Kafka: LogManager.getOrCreateLog, which waits in the thread that applies metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.storage.directories.partition_dir_names import set_aside_others
from ottla.storage.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.config import LogConfig
    from ottla.storage.log.events import LogEvents
    from ottla.storage.log_set.table import LogTable
    from ottla.types import TopicPartition, Uuid

LOGS_IN_A_JOB: Final = 25


class LogCreation:
    """Creates logs in one directory; those that fail are left to the caller."""

    def __init__(
        self,
        table: LogTable,
        log_dir: LogDirectory,
        partitions: list[tuple[TopicPartition, Uuid]],
        *,
        config_for: Callable[[str], LogConfig],
        events: LogEvents,
        now_ms: int,
    ) -> None:
        self._table = table
        self._log_dir = log_dir
        self._partitions = partitions
        self._config_for = config_for
        self._events = events
        self._now_ms = now_ms
        self._configs = {name.topic: config_for(name.topic) for name, _ in partitions}
        self._opened: list[PartitionLog] = []

    @property
    def volume(self) -> Hashable:
        """The volume whose disk it waits for."""
        return self._log_dir.directory.volume

    def run(self) -> None:
        """Create the directories and their files."""
        for partition, topic_id in self._partitions:
            set_aside_others(self._log_dir.directory, partition, topic_id)
            log = PartitionLog.open(
                self._log_dir.directory,
                str(partition),
                topic_partition=partition,
                topic_id=topic_id,
                config=self._configs[partition.topic],
                now_ms=self._now_ms,
                clean=True,
                events=self._events,
            )
            self._opened.append(log)

    def done(self, error: BaseException | None) -> None:
        """Add the logs to the set; a disk that failed takes its directory offline."""
        log_dir = self._log_dir
        if isinstance(error, OSError):
            self._table.fail(log_dir, error)
        for log in self._opened:
            if log_dir.is_online:
                self._add(log)
            else:
                log.release()

    def _add(self, log: PartitionLog) -> None:
        self._table.add(self._log_dir, log)
        topic = log.topic_partition.topic
        config = self._config_for(topic)
        if config != self._configs[topic]:
            log.reconfigure(config)  # changed meanwhile
