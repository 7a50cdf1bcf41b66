"""Selects the segments to delete: by time, by size, by the log start offset.

Only complete segments below the high watermark are deleted; the active one is rolled first. Of a
log that is copied to remote storage only those that are there, by local.retention.ms and
local.retention.bytes (KIP-405).
After a jump of the wall clock, segments that are old only by the new time are deleted one per
check, so that an operator can correct the clock before all data is deleted.

Kafka: UnifiedLog.deleteOldSegments, which treats a clock jump as elapsed time.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.segments.segment import Segment


class ClockStep(NamedTuple):
    """A forward jump of the wall clock relative to elapsed time."""

    size_ms: int
    at_ms: int
    """The wall time right after the jump: later timestamps were written after it."""

    def makes_old(self, newest_ms: int, now_ms: int, retention_ms: int) -> bool:
        """Whether a segment whose newest record is of this time is too old only by the jump."""
        return newest_ms < self.at_ms and now_ms - self.size_ms - newest_ms <= retention_ms


SMALLEST_STEP_MS = 60_000
"""Smaller differences come from clock corrections or a delayed event loop."""


class ClockJumpDetector:
    """Tracks the jump that still affects retention; its owner calls `look` periodically."""

    def __init__(self, now_ms: int, monotonic_ms: int) -> None:
        self.step: ClockStep | None = None
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def look(self, now_ms: int, monotonic_ms: int) -> bool:
        """Compare with the last call; True when the clock jumped ahead since then.

        Jumps add up while the first one has an effect; a jump back is subtracted.
        """
        elapsed_ms = monotonic_ms - self._monotonic_ms
        step_ms = now_ms - self._now_ms - elapsed_ms
        before_ms, self._now_ms, self._monotonic_ms = self._now_ms, now_ms, monotonic_ms
        if step_ms >= max(SMALLEST_STEP_MS, elapsed_ms):
            known = self.step
            size_ms = step_ms if known is None else step_ms + known.size_ms
            self.step = ClockStep(size_ms, before_ms + step_ms)
            return True
        if step_ms <= -SMALLEST_STEP_MS and self.step is not None:
            self._step_back(self.step, step_ms)
        return False

    def _step_back(self, known: ClockStep, step_ms: int) -> None:
        size_ms = known.size_ms + step_ms
        is_left = size_ms >= SMALLEST_STEP_MS
        self.step = ClockStep(size_ms, known.at_ms + step_ms) if is_left else None

    def forget(self) -> None:
        """Forget the jump: no segment is held back for it any longer."""
        self.step = None


class Due(NamedTuple):
    """The segments of one log that a check found."""

    segments: list[Segment]
    held_back: int = 0
    """How many more are due only because of a clock jump: deleted in later checks."""


def segments_to_delete(
    log: PartitionLog, now_ms: int, step: ClockStep | None = None, max_count: int | None = None
) -> Due:
    """Return the segments to delete by retention.ms, retention.bytes or the log start offset.

    At most max_count; no segment after the next one is looked at. `held_back` is 0 when some are
    left that need not be held back.
    """
    looked_at = None if max_count is None else max_count + 1
    found = Due([])
    if log.config.deletes_by_retention:
        found = _by_time(log, now_ms, step, looked_at)
        by_size = _due(log, _above_size(log, log.config.disk_retention_bytes), looked_at)
        found = _more(found, by_size)
    found = _more(found, _below(log, log.log_start_offset, looked_at))
    return Due(found.segments[:max_count], found.held_back)


def is_oldest_expired(log: PartitionLog, now_ms: int) -> bool:
    """Whether the oldest segment is due by its age, so that the ages of further ones are needed."""
    return bool(_due(log, _older_than(now_ms, log.config.disk_retention_ms), 1))


def _more(found: Due, segments: list[Segment]) -> Due:
    """Return the larger selection: both begin at the oldest segment."""
    more = len(segments) - len(found.segments)
    return Due(segments, max(0, found.held_back - more)) if more > 0 else found


def _by_time(log: PartitionLog, now_ms: int, step: ClockStep | None, max_count: int | None) -> Due:
    """Select old segments; of those that are old only because of a clock jump, one.

    That one is never the active segment, which in a small log holds all data.
    """
    due = _due(log, _older_than(now_ms, log.config.disk_retention_ms), max_count)
    if step is None or not due:
        return Due(due)
    retention_ms, count = log.config.disk_retention_ms, 0
    while count < len(due) and not step.makes_old(_newest_ms(due[count]), now_ms, retention_ms):
        count += 1
    is_active = count < len(due) and due[count] is log.segments.active
    allowed = due[: count if is_active else count + 1]
    return Due(allowed, len(due) - len(allowed))


def _newest_ms(segment: Segment) -> int:
    """Return the time from which the segment's age is computed."""
    newest = segment.max_timestamp
    return newest if newest >= 0 else segment.modified_ms()


def _older_than(now_ms: int, retention_ms: int) -> Callable[[Segment], bool]:
    if retention_ms < 0:
        return lambda _: False
    return lambda segment: now_ms - _newest_ms(segment) > retention_ms


def _above_size(log: PartitionLog, retention_bytes: int) -> Callable[[Segment], bool]:
    if retention_bytes < 0:
        return lambda _: False
    excess = log.size_bytes - retention_bytes

    def is_above(segment: Segment) -> bool:
        nonlocal excess
        if excess - segment.size < 0:
            return False
        excess -= segment.size
        return True

    return is_above


def _due(
    log: PartitionLog, is_due: Callable[[Segment], bool], max_count: int | None
) -> list[Segment]:
    """Select segments from the oldest on as long as they are due and replicated, or copied."""
    due: list[Segment] = []
    segments = log.segments
    limit = log.high_watermark
    if log.config.is_copied_to_tier:
        limit = min(limit, log.highest_remote_offset + 1)
    for number, segment in enumerate(islice(segments, max_count)):
        end = segments.end_of(number, log.log_end_offset)
        is_empty_active = segment is segments.active and segment.size == 0
        if is_empty_active or limit < end or not is_due(segment):
            break
        due.append(segment)
    return due


def _below(log: PartitionLog, log_start_offset: int, max_count: int | None) -> list[Segment]:
    """Select the segments that end at or below the start offset; never the active one."""
    count = max(bisect_right(log.segments.base_offsets, log_start_offset) - 1, 0)
    return log.segments.ordered[:count][:max_count]
