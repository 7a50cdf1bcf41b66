"""Checks of all logs: expired segments and idle files, and expired producers.

Kafka: LogManager.cleanupLogs, on a thread of its own; UnifiedLog.removeExpiredProducers.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage, KafkaError
from ottla.purgatory.pending import Pending
from ottla.storage.log.retention import is_oldest_expired
from ottla.storage.log.timestamp_reads import oldest_timestamp, oldest_timestamps
from ottla.storage.log_set.jobs import run_timestamp_reads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log.retention import ClockStep
    from ottla.storage.log.timestamp_reads import TimestampRead
    from ottla.storage.log_set.jobs import RunOnVolume
    from ottla.storage.log_set.log_set import LogSet

MAX_SEGMENTS_DELETED = 50
"""Segments of a log deleted per step: each takes about 70 µs for the renames of its files."""
EXPIRY_STEP_LOGS = 1000
STEP_PRODUCERS = 5000
"""Producers checked per step, which takes about a millisecond."""


class RetentionCheck:
    """Deletes old segments and releases idle files, log by log."""

    __slots__ = ("_logs", "_on_damage", "_waiting", "deleted")

    def __init__(
        self, logs: LogSet, on_damage: Callable[[PartitionLog, CorruptMessage], None] | None = None
    ) -> None:
        """on_damage(log, error) is called for each log that cannot be read: it is skipped."""
        self._logs = logs
        self._on_damage = on_damage
        self._waiting = [*logs, *logs.futures]
        self._waiting.reverse()
        self.deleted = 0
        """Number of segments deleted so far."""

    def read_ages(self, now_ms: int, max_count: int, run_on_volume: RunOnVolume) -> Pending[None]:
        """Have workers read what the next `step` of so many logs needs; complete after that.

        After a start the age of old segments is on disk only. `step` reads what is missing itself.
        """
        result: Pending[None] = Pending()

        def read_further(_none: object) -> None:
            further = self._further_reads(now_ms, max_count)
            run_timestamp_reads(further, run_on_volume).pass_to(result)

        run_timestamp_reads(self.reads(max_count), run_on_volume).on_done(read_further)
        return result

    def reads(self, max_count: int) -> list[TimestampRead]:
        """Return the reads of the oldest segment of so many logs."""
        logs = self._aging(max_count)
        return [read for log in logs if (read := oldest_timestamp(log)) is not None]

    def _further_reads(self, now_ms: int, max_count: int) -> list[TimestampRead]:
        """Return the read of the first log that loses segments, with which the next `step` ends."""
        for log in self._aging(max_count):
            is_known = oldest_timestamp(log) is None
            if is_known and not log.is_paused and is_oldest_expired(log, now_ms):
                read = oldest_timestamps(log, MAX_SEGMENTS_DELETED + 1)
                return [] if read is None else [read]
        return []

    def _aging(self, max_count: int) -> Iterator[PartitionLog]:
        """Return those of the next logs whose segments are deleted by their age."""
        table = self._logs.table
        following = islice(reversed(self._waiting), max_count)
        return (log for log in following if table.holds(log) and _ages(log))

    def step(
        self, now_ms: int, clock_step: ClockStep | None = None, max_count: int | None = None
    ) -> bool:
        """Check `max_count` further logs, up to one with deleted segments; None checks all.

        A log with more expired segments than MAX_SEGMENTS_DELETED is also the next one.
        Return whether any remains. Segments due only by a clock jump are deleted one by one: see
        `LogSet.is_holding_back`.
        """
        end = 0 if max_count is None else max(0, len(self._waiting) - max_count)
        while len(self._waiting) > end:
            log = self._waiting.pop()
            count = self._check(log, now_ms, clock_step)
            if count >= MAX_SEGMENTS_DELETED and not log.held_back_count:
                self._waiting.append(log)
            if max_count is not None and count:
                break
        return bool(self._waiting)

    def _check(self, log: PartitionLog, now_ms: int, clock_step: ClockStep | None) -> int:
        logs = self._logs
        log_dir = logs.table.directory_of(log)
        if log_dir is None or log.failure is not None:
            return 0
        count = 0
        try:
            count = log.truncation.delete_old_segments(now_ms, clock_step, MAX_SEGMENTS_DELETED)
        except CorruptMessage as error:
            if self._on_damage is not None:
                self._on_damage(log, error)
        except KafkaError as error:
            logs.fail(log_dir, error.__cause__)
        except OSError as error:
            logs.fail(log_dir, error)
        log.release_idle()
        self.deleted += count
        return count


def _ages(log: PartitionLog) -> bool:
    """Whether segments are deleted by their age."""
    return log.config.deletes_by_retention and log.config.disk_retention_ms >= 0


class ProducerExpiry:
    """One check of the producers of all logs that are there when it begins."""

    __slots__ = ("_waiting",)

    def __init__(self, logs: LogSet) -> None:
        self._waiting = [*logs, *logs.futures]

    def step(self, now_ms: int) -> bool:
        """Check the next producers; return whether any remains."""
        logs = producers = 0
        while self._waiting and logs < EXPIRY_STEP_LOGS and producers < STEP_PRODUCERS:
            state = self._waiting[-1].producer_state
            logs += 1
            producers += len(state.producers)
            if state.remove_expired(now_ms, STEP_PRODUCERS):
                break
            self._waiting.pop()
        return bool(self._waiting)
