"""Responses that wait until a log is flushed, as flush.messages requires.

Kafka: the flush at the end of UnifiedLog.append, for which the request thread waits. Here
an append takes a Pending that completes when a worker's flush has passed its offset; one flush
completes all appends made before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError, LocalDiskError
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.types import TopicPartition


class FlushWaits:
    """The waiting responses by log, each with the offset that must be durable."""

    def __init__(self) -> None:
        self.overdue: list[PartitionLog] = []
        """Logs that reached flush.messages since the last `take`; always the same list object."""
        self._waiting: dict[PartitionLog, list[tuple[int, Pending[None]]]] = {}

    def __contains__(self, log: PartitionLog) -> bool:
        return log in self._waiting

    def take(self) -> dict[TopicPartition, Pending[None]]:
        """Begin to wait for all overdue logs; `settle` completes or fails the result."""
        taken: dict[TopicPartition, Pending[None]] = {}
        for log in self.overdue:
            if log.topic_partition in taken:
                continue
            # as in Kafka, fewer records than flush.messages may stay unflushed
            target = log.log_end_offset - log.config.flush_messages + 1
            wait: Pending[None] = Pending()
            taken[log.topic_partition] = wait
            self._waiting.setdefault(log, []).append((target, wait))
        self.overdue.clear()
        return taken

    def add(self, log: PartitionLog) -> Pending[None]:
        """Begin to wait for one log, up to its end; `settle` completes or fails the result."""
        wait: Pending[None] = Pending()
        self._waiting.setdefault(log, []).append((log.log_end_offset, wait))
        return wait

    def hand_over(self, old: PartitionLog, new: PartitionLog) -> None:
        """Move the waits of a log to the log that replaces it."""
        waits = self._waiting.pop(old, None)
        if waits is not None:
            self._waiting.setdefault(new, []).extend(waits)
        self.overdue[:] = [new if wait is old else wait for wait in self.overdue]

    def settle(self, log: PartitionLog) -> None:
        """Complete waits for what is durable now; fail all when the log is lost.

        KAFKA_STORAGE_ERROR for a log whose disk failed, UNKNOWN_TOPIC_OR_PARTITION for a deleted
        one.
        """
        waits = self._waiting.pop(log, None)
        if waits is None:
            return
        error = _loss(log)
        over: list[Pending[None]] = []
        left: list[tuple[int, Pending[None]]] = []
        for target, wait in waits:
            # truncated records are not waited for
            is_durable = min(target, log.log_end_offset) <= log.recovery_point
            if error is not None or (is_durable and log.is_cut_durable):
                over.append(wait)
            else:
                left.append((target, wait))
        if left:
            self._waiting[log] = left
        for wait in over:  # callbacks may append again: the state is consistent by now
            if error is None:
                wait.complete(None)
            else:
                wait.fail(error)


def _loss(log: PartitionLog) -> KafkaError | None:
    if log.is_deleted:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{log.name} was deleted")
    if log.failure is not None:
        return LocalDiskError(f"flushing {log.topic_partition}: {log.failure}")
    return None
