"""New logs of many partitions, made by workers: each file that is made may wait for the disk.

Kafka: LogManager.getOrCreateLog, which waits in the thread that applies metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.storage.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log_set.log_set import LogSet
    from ottla.types import TopicPartition, Uuid

LOGS_IN_A_JOB: Final = 25


class LogCreation:
    """Makes some logs in one directory; a partition whose log cannot be made stays without."""

    def __init__(
        self,
        logs: LogSet,
        log_dir: LogDirectory,
        partitions: list[tuple[TopicPartition, Uuid]],
        now_ms: int,
    ) -> None:
        self._logs = logs
        self._log_dir = log_dir
        self._partitions = partitions
        self._now_ms = now_ms
        self._configs = {name.topic: logs.config_for(name.topic) for name, _ in partitions}
        self._opened: list[PartitionLog] = []

    def run(self) -> None:
        """Make the directories and their files."""
        for partition, topic_id in self._partitions:
            log = PartitionLog.open(
                self._log_dir.directory,
                str(partition),
                topic_partition=partition,
                topic_id=topic_id,
                config=self._configs[partition.topic],
                now_ms=self._now_ms,
                clean=True,
                events=self._logs.events,
            )
            self._opened.append(log)

    def done(self, error: BaseException | None) -> None:
        """Add the logs to the set; a disk that failed takes its directory offline."""
        logs, log_dir = self._logs, self._log_dir
        if isinstance(error, OSError):
            logs.fail(log_dir, error)
        for log in self._opened:
            if log_dir.is_online:
                self._add(log)
            else:
                log.release()

    def _add(self, log: PartitionLog) -> None:
        logs, partition = self._logs, log.topic_partition
        logs.table.add(self._log_dir, log)
        logs.preferred.pop(partition, None)
        config = logs.config_for(partition.topic)
        if config != self._configs[partition.topic]:
            log.reconfigure(config)  # changed meanwhile
