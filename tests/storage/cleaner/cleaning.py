"""Helpers that clean logs as a node does, and read what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.purgatory import work
from ottla.records.batches import iterate_batches
from ottla.records.builder import encode_batch
from ottla.storage.cleaner.cleaner import CleanerLimits
from ottla.storage.cleaner.log_cleaner_manager import CleaningProgress, LogCleanerManager
from ottla.storage.log.config import LogConfig
from tests.storage.logs import NOW_MS
from tests.storage.sets import drain, finish

if TYPE_CHECKING:
    from ottla.records.batch import RecordBatch
    from ottla.records.record import Record
    from ottla.storage.cleaner.cleaner import Cleaner
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.log_set import LogSet

LIMITS = CleanerLimits(1 << 20, 0.9, 1 << 16)
COMPACT = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=1000,
    index_interval_bytes=150,
    segment_index_bytes=1200,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
    file_delete_delay_ms=0,
)


class CleanerBed:
    """A set of logs with its cleaner."""

    def __init__(self, logs: LogSet, limits: CleanerLimits = LIMITS) -> None:
        self.logs = logs
        self.cleaner = LogCleanerManager(logs)
        self.limits = limits
        self.seed = 1 << 100

    def choose(self, now_ms: int = NOW_MS) -> Cleaner | None:
        """Return a begun cleaning of the dirtiest log."""
        survey = self.cleaner.survey(now_ms)
        work.finish(survey.examine())
        self.cleaner.surveyed(survey)
        if survey.best is None:
            return None
        self.seed += 1
        return self.cleaner.begin(survey.best, self.limits, now_ms=now_ms, seed=self.seed)

    def run(self, cleaning: Cleaner, now_ms: int = NOW_MS) -> CleaningProgress:
        """Run a cleaning to its end, in slices."""
        while True:
            error = None
            try:
                cleaning.run(2000)
            except Exception as failure:
                error = failure
            progress = self.cleaner.advance(cleaning, error, now_ms)
            if progress is not CleaningProgress.GOES_ON:
                return progress

    def clean(self, now_ms: int = NOW_MS) -> int:
        """Make all durable, then clean until nothing is left to do; return how many cleanings."""
        count = 0
        self.make_durable(now_ms)
        while (cleaning := self.choose(now_ms)) is not None:
            assert self.run(cleaning, now_ms) is CleaningProgress.CLEANED
            count += 1
            assert count < 100
        self.make_durable(now_ms)
        return count

    def make_durable(self, now_ms: int = NOW_MS) -> None:
        """Flush all logs, write the checkpoints and remove deleted segments."""
        drain(self.logs, now_ms)
        for log in self.logs:
            finish(self.logs.flushes.take_whole(log, now_ms))
        self.logs.checkpoints.request_all()
        drain(self.logs, now_ms)
        finish(self.cleaner.take_jobs())
        finish(self.logs.removals.take_due(now_ms))


def put_keys(
    log: PartitionLog, *pairs: tuple[bytes | None, bytes | None], now_ms: int = NOW_MS
) -> None:
    """Append one batch of keys and values, and replicate it."""
    batch = encode_batch([(now_ms, key, value, ()) for key, value in pairs])
    log.writes.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=now_ms)
    log.update_high_watermark(log.log_end_offset)


def records_of(log: PartitionLog) -> list[Record]:
    """Return all records of a log but for the control records."""
    return [
        record for batch in batches_of(log) if not batch.is_control for record in batch.records()
    ]


def last_records(log: PartitionLog) -> list[Record]:
    """Return the records of the newest batch."""
    segment = log.segments.ordered[-1]
    *_, batch = iterate_batches(segment.file.read(0, segment.size))
    return list(batch.records())


def batches_of(log: PartitionLog) -> list[RecordBatch]:
    """Return all batches of a log, with the right checksums."""
    found = [
        batch
        for segment in log.segments
        for batch in iterate_batches(segment.file.read(0, segment.size))
    ]
    for batch in found:
        batch.check_crc()
    return found


def pairs_of(log: PartitionLog) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values of all records."""
    return [(record.key, record.value) for record in records_of(log)]
