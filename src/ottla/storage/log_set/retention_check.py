"""One look at all logs for what retention gives up, in slices: each rename holds the loop up.

Kafka: LogManager.cleanupLogs, on a thread of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log.retention import ClockStep
    from ottla.storage.log_set.log_set import LogSet

SLICE_LOGS = 256
"""Looked at in one slice, which takes a millisecond or two while none of them loses anything."""


class RetentionCheck:
    """Deletes old segments, and lets go of idle files and producers, log by log."""

    __slots__ = ("_logs", "_on_damage", "_waiting", "deleted")

    def __init__(
        self, logs: LogSet, on_damage: Callable[[PartitionLog, CorruptMessage], None] | None = None
    ) -> None:
        """on_damage(log, error) is called for each log that cannot be read: it is passed over."""
        self._logs = logs
        self._on_damage = on_damage or _nobody
        self._waiting = list(logs)
        self._waiting.reverse()
        self.deleted = 0
        """Segments so far."""

    def step(
        self, now_ms: int, clock_step: ClockStep | None = None, most: int | None = None
    ) -> bool:
        """Look at `most` further logs, or up to the first that loses something; None is all.

        Returns whether any is left. What only a step of the clock makes due goes one by one: see
        `LogSet.is_holding_back`.
        """
        end = 0 if most is None else max(0, len(self._waiting) - most)
        while len(self._waiting) > end:
            count = self._look_at(self._waiting.pop(), now_ms, clock_step)
            if count and most is not None:
                break
        return bool(self._waiting)

    def _look_at(self, log: PartitionLog, now_ms: int, clock_step: ClockStep | None) -> int:
        logs = self._logs
        log_dir = logs.log_dir_of(log.topic_partition)
        if log_dir is None or logs.get(log.topic_partition) is not log or log.failure is not None:
            return 0
        count = 0
        log.remove_expired_producers(now_ms)
        try:
            count = log.delete_old_segments(now_ms, clock_step)
        except CorruptMessage as error:
            self._on_damage(log, error)
        except KafkaError as error:
            logs.fail(log_dir, error.__cause__)
        except OSError as error:
            logs.fail(log_dir, error)
        if log.has_deleted_segments:
            logs.segments_deleted(log)
        log.release_idle()
        self.deleted += count
        return count


def _nobody(_log: PartitionLog, _error: CorruptMessage) -> None:
    """Stand in for a caller who wants to know of no damage."""
