"""Chooses the logs to be compacted, dirtiest first, and applies the results of the workers.

A log whose records cannot be read is uncleanable until the node starts again: it is reported once
and counted. A disk without space ends a cleaning and leaves the log as it was; where it fails, its
directory goes offline.

Kafka: org.apache.kafka.storage.internals.log.LogCleanerManager.
"""

from __future__ import annotations

import errno
import logging
from enum import Enum
from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage, KafkaError
from ottla.storage.cleaner.candidates import candidate_of
from ottla.storage.cleaner.cleaner import Cleaner
from ottla.storage.disk_errors import is_exhaustion

if TYPE_CHECKING:
    from ottla.purgatory.work import Work
    from ottla.storage.cleaner.candidates import LogToClean
    from ottla.storage.cleaner.cleaner import CleanerLimits
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.jobs import StorageJob
    from ottla.storage.log_set.log_set import LogSet

log = logging.getLogger("ottla.cleaner")
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class CleaningProgress(Enum):
    """The state of a cleaning after a slice."""

    GOES_ON = "goes on"
    CLEANED = "cleaned"
    ABORTED = "aborted"


class Survey:
    """A scan of all logs; `best` is the log to clean when it is complete."""

    def __init__(self, cleaner: LogCleanerManager, logs: list[PartitionLog], now_ms: int) -> None:
        self._cleaner = cleaner
        self._waiting = logs
        self._now_ms = now_ms
        self.best: LogToClean | None = None
        self.max_ratio = 0.0
        self.max_delay_ms = 0

    def examine(self) -> Work[None]:
        """Examine all logs."""
        while self._waiting:
            candidate = self._cleaner.candidate(self._waiting.pop(), self._now_ms)
            if candidate is not None:
                self.max_ratio = max(self.max_ratio, candidate.ratio)
                self.max_delay_ms = max(self.max_delay_ms, candidate.delay_ms)
                is_best = self.best is None or candidate.ratio > self.best.ratio
                if candidate.is_due and is_best:
                    self.best = candidate
            yield


class LogCleanerManager:
    """The cleaner of a log set; `begin` and `advance` are called on the loop."""

    def __init__(self, logs: LogSet) -> None:
        self._logs = logs
        self._table = logs.table
        self._in_progress: dict[PartitionLog, Cleaner] = {}
        self._postponed: set[PartitionLog] = set()
        """Logs whose last cleaning was aborted: others go first."""
        self.uncleanable: dict[PartitionLog, int] = {}
        """Logs that cannot be cleaned, with the bytes that should be."""
        self.last_survey_ms = 0
        self.max_ratio = 0.0
        """Of the last survey."""
        self.max_delay_ms = 0
        """As above."""

    # Choice

    def survey(self, now_ms: int) -> Survey:
        """Begin the search for a log to clean."""
        self.last_survey_ms = now_ms
        candidates = [
            one for one in self._table if one.config.is_compacted and one not in self._in_progress
        ]
        return Survey(self, candidates, now_ms)

    def surveyed(self, survey: Survey) -> None:
        """Record the result of a complete survey."""
        self.max_ratio, self.max_delay_ms = survey.max_ratio, survey.max_delay_ms
        if survey.best is None:
            self._postponed.clear()

    def candidate(self, one: PartitionLog, now_ms: int) -> LogToClean | None:
        """Return the cleanable part of a log; None when the log must not be cleaned now."""
        if not self._is_free(one) or one in self._in_progress:
            return None
        flushed_offset = self._logs.checkpoints.stored_recovery_point(one)
        try:
            found = candidate_of(one, self._logs.cleaner_offsets.get(one), flushed_offset, now_ms)
        except (CorruptMessage, OSError) as error:
            self._failed(one, error)
            return None
        if found.first_uncleanable < one.segments.active.base_offset:
            self._request_checkpoint(one, flushed_offset)
        if one in self.uncleanable:
            self.uncleanable[one] = found.cleanable_bytes
            return None
        return None if one in self._postponed else found

    def _request_checkpoint(self, one: PartitionLog, flushed_offset: int) -> None:
        """Request the recovery-point checkpoint when only that limits the cleaning."""
        log_dir = self._table.directory_of(one)
        if log_dir is not None and flushed_offset < one.recovery_point:
            self._logs.checkpoints.request(log_dir)

    def _is_free(self, one: PartitionLog) -> bool:
        """Whether the log is there and its segments may be replaced."""
        return (
            self._table.holds(one)
            and one.failure is None
            and not one.is_paused
            and one.topic_partition not in self._table.futures
        )

    # Work

    def begin(
        self, candidate: LogToClean, limits: CleanerLimits, *, now_ms: int, seed: int
    ) -> Cleaner | None:
        """Begin to clean a log; None when it cannot be read. The seed is secret, of 128 bits."""
        one = candidate.log
        if not self._is_free(one) or one in self._in_progress:
            return None
        try:
            cleaning = Cleaner(candidate, limits, now_ms=now_ms, seed=seed)
        except (CorruptMessage, OSError) as error:
            self._failed(one, error)
            return None
        self._in_progress[one] = cleaning
        return cleaning

    def advance(self, cleaning: Cleaner, error: Exception | None, now_ms: int) -> CleaningProgress:
        """Apply the result of a slice; return whether the cleaning continues."""
        one = cleaning.candidate.log
        if error is None and self._goes_on(cleaning) and self._replace(cleaning, now_ms):
            if not cleaning.is_done:
                return CleaningProgress.GOES_ON
            self._finish(cleaning, now_ms)
            return CleaningProgress.CLEANED
        self._postponed.add(one)
        self.abort(cleaning, error)
        return CleaningProgress.ABORTED

    def abort(self, cleaning: Cleaner, error: Exception | None = None) -> None:
        """End a cleaning whose worker has stopped; the log stays as it is."""
        one = cleaning.candidate.log
        del self._in_progress[one]
        is_ours = self._table.holds(one) and one.failure is None
        if is_ours and error is not None and not self._is_overtaken(cleaning, error):
            self._failed(one, error)
        if is_ours and one.failure is None:
            self._discard(cleaning)

    def _is_overtaken(self, cleaning: Cleaner, error: Exception) -> bool:
        """Whether the missing file belongs to a segment that the log no longer has."""
        is_missing = isinstance(error, FileNotFoundError)
        return is_missing and not (self._goes_on(cleaning) and cleaning.is_current)

    def _goes_on(self, cleaning: Cleaner) -> bool:
        one = cleaning.candidate.log
        return self._is_free(one) and one.generation == cleaning.generation

    def _replace(self, cleaning: Cleaner, now_ms: int) -> bool:
        found = cleaning.take_replacement()
        if found is None:
            return True
        one = cleaning.candidate.log
        try:
            return one.replace_segments(
                found.old, [found.new], generation=cleaning.generation, now_ms=now_ms
            )
        except KafkaError as error:
            self._fail_directory(one, error.__cause__)
            return False

    def _finish(self, cleaning: Cleaner, now_ms: int) -> None:
        one, stats = cleaning.candidate.log, cleaning.stats
        del self._in_progress[one]
        self._postponed.discard(one)
        stats.finished_ms = now_ms
        self._logs.cleaner_offsets.cleaned(one, cleaning.end_offset)
        log.info(
            "%s cleaned from offset %d up to %d: %d of %d bytes and %d of %d records are left",
            one.name, cleaning.candidate.first_dirty, cleaning.end_offset,
            stats.bytes_written, stats.bytes_read, stats.records_kept, stats.records_read,
            extra={"event": "log.cleaned", "partition": str(one.topic_partition)},
        )  # fmt: skip

    def take_jobs(self) -> list[StorageJob]:
        """Return the jobs that write the checkpoints."""
        return self._logs.cleaner_offsets.take()

    # Failures

    def _discard(self, cleaning: Cleaner) -> None:
        try:
            cleaning.discard()
        except OSError as error:
            self._fail_directory(cleaning.candidate.log, error)

    def _failed(self, one: PartitionLog, error: Exception) -> None:
        if not isinstance(error, OSError):
            self._mark_uncleanable(one, error)
        elif error.errno in _NO_SPACE or is_exhaustion(error):
            text = "cleaning %s stopped: %s; it is retried"
            log.warning(text, one.name, error, extra={"event": "log.cleaning_stopped"})
        else:
            self._fail_directory(one, error)

    def _fail_directory(self, one: PartitionLog, error: BaseException | None) -> None:
        log_dir = self._table.directory_of(one)
        if log_dir is not None:
            self._logs.fail(log_dir, error)

    def _mark_uncleanable(self, one: PartitionLog, error: Exception) -> None:
        if one not in self.uncleanable:
            self.uncleanable[one] = 0
            log.error(
                "%s cannot be cleaned and stays as it is: %s; run `ottla log-repair`, then restart",
                one.name, error,
                extra={"event": "log.uncleanable", "partition": str(one.topic_partition)},
            )  # fmt: skip

    def uncleanable_in(self, log_dir: LogDirectory) -> list[int]:
        """Return the dirty bytes of the uncleanable logs of a directory."""
        gone = [one for one in self.uncleanable if not self._table.holds(one)]
        for one in gone:
            del self.uncleanable[one]
        return [
            size
            for one, size in self.uncleanable.items()
            if self._table.directory_of(one) is log_dir
        ]
