"""Which part of a log may be compacted, and how urgent that is.

A log is clean up to its checkpointed offset and dirty from there on. Not cleaned are the active
segment, what is above the last stable offset, what is younger than min.compaction.lag.ms, and, in
Ottla, what is above the recovery point in the directory's file: recovery from there takes a gap for
lost records.

Kafka: LogCleanerManager.{cleanableOffsets, maxCompactionDelay}, LogToClean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.segments.segment import Segment


class LogToClean(NamedTuple):
    """A log with its dirty part: the offsets from first_dirty up to first_uncleanable."""

    log: PartitionLog
    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """For how long a record has waited beyond max.compaction.lag.ms; 0 when none has."""

    @property
    def ratio(self) -> float:
        """The share of the bytes that are dirty."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the log should be cleaned now."""
        if not self.cleanable_bytes:
            return False
        return self.delay_ms > 0 or self.ratio > self.log.config.min_cleanable_dirty_ratio


def candidate_of(
    log: PartitionLog, clean_offset: int | None, flushed_offset: int, now_ms: int
) -> LogToClean:
    """Return what may be cleaned of a log; CorruptMessage, OSError when it cannot be read.

    clean_offset is the checkpointed one, None without any; flushed_offset is that of the
    directory's recovery-point checkpoint.
    """
    first_dirty = _first_dirty(log, clean_offset)
    limit = min(log.last_stable_offset, log.segments.active.base_offset, flushed_offset)
    limit = max(first_dirty, min(limit, _first_young(log, first_dirty, now_ms)))
    bases, segments = log.segments.base_offsets, log.segments.ordered
    number = _number_for(log, limit)
    first_uncleanable = bases[number]
    dirty = _number_for(log, min(first_dirty, first_uncleanable))
    cleanable = segments[dirty:number]
    clean = [segment.size for segment in segments if segment.base_offset < first_dirty]
    return LogToClean(
        log,
        first_dirty,
        first_uncleanable,
        sum(clean),
        sum(segment.size for segment in cleanable),
        _delay_ms(log, segments[dirty:-1], now_ms),
    )


def _number_for(log: PartitionLog, offset: int) -> int:
    """Return the number of the segment that holds the offset, or the first one."""
    return max(log.segments.number_for(offset), 0)


def _first_dirty(log: PartitionLog, clean_offset: int | None) -> int:
    """Return where the dirty part begins; a checkpoint outside of the log is ignored."""
    if clean_offset is None or not log.log_start_offset <= clean_offset <= log.log_end_offset:
        return log.log_start_offset
    return clean_offset


def _first_young(log: PartitionLog, first_dirty: int, now_ms: int) -> int:
    """Return the base of the first segment with a record within min.compaction.lag.ms."""
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in log.segments.ordered[_number_for(log, first_dirty) : -1]:
            if segment.max_timestamp > now_ms - lag_ms:
                return segment.base_offset
    return log.segments.active.base_offset


def _delay_ms(log: PartitionLog, dirty: list[Segment], now_ms: int) -> int:
    clean_until_ms = now_ms - max(log.config.max_compaction_lag_ms, 0)
    if clean_until_ms <= 0:
        return 0
    times = [time for time in (segment.first_timestamp for segment in dirty) if time > 0]
    return max(clean_until_ms - min(times), 0) if times else 0
