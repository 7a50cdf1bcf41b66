"""Which segments are old enough to go: by time, by size, by the log's start.

Only whole segments below the high watermark go; the active one is rolled first when it is due.
After a step of the wall clock, what is old by the new time alone goes one segment a check, so that
somebody may set the clock right before all is gone.

Kafka: UnifiedLog.deleteOldSegments, which takes every step of the clock for time that went by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.storage.log.state import LogState
    from ottla.storage.segments.segment import Segment


class ClockStep(NamedTuple):
    """By how much the wall clock ran ahead of the time that went by."""

    size_ms: int
    at_ms: int
    """The new wall time at the step: what bears a later one was written after it."""


class Due(NamedTuple):
    """What a check found in one log."""

    segments: list[Segment]
    held_back: int = 0
    """How many more are due, but only by a step of the clock: they go in later checks."""


def segments_to_delete(log: LogState, now_ms: int, step: ClockStep | None = None) -> Due:
    """Return the segments that retention.ms, retention.bytes or the start offset give up."""
    found = Due([])
    if log.config.deletes_by_retention:
        found = _by_time(log, now_ms, step)
        by_size = _due(log, _above_size(log, log.config.retention_bytes))
        found = _more(found, by_size)
    return _more(found, _below(log, log.log_start_offset))


def _more(found: Due, segments: list[Segment]) -> Due:
    """Take the larger one: both begin at the oldest segment."""
    more = len(segments) - len(found.segments)
    return Due(segments, max(0, found.held_back - more)) if more > 0 else found


def _by_time(log: LogState, now_ms: int, step: ClockStep | None) -> Due:
    """Take what is old; of what is old only because the clock stepped, one segment.

    That one is never the active segment: in a small log it holds all there is.
    """
    due = _due(log, _older_than(now_ms, log.config.retention_ms))
    if step is None or not due:
        return Due(due)
    is_old_anyway = _older_than(now_ms - step.size_ms, log.config.retention_ms)
    count = 0
    while count < len(due) and (is_old_anyway(due[count]) or _newest_ms(due[count]) >= step.at_ms):
        count += 1
    is_active = count < len(due) and due[count] is log.segments.active
    allowed = due[: count if is_active else count + 1]
    return Due(allowed, len(due) - len(allowed))


def _newest_ms(segment: Segment) -> int:
    """Return the time by which the segment's age counts."""
    newest = segment.max_timestamp
    return newest if newest >= 0 else segment.modified_ms()


def _older_than(now_ms: int, retention_ms: int) -> Callable[[Segment], bool]:
    if retention_ms < 0:
        return lambda _: False
    return lambda segment: now_ms - _newest_ms(segment) > retention_ms


def _above_size(log: LogState, retention_bytes: int) -> Callable[[Segment], bool]:
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


def _due(log: LogState, is_due: Callable[[Segment], bool]) -> list[Segment]:
    """Take segments from the oldest on as long as they are due and replicated."""
    due: list[Segment] = []
    segments = log.segments
    for number, segment in enumerate(segments):
        end = segments.end_of(number, log.log_end_offset)
        is_empty_active = segment is segments.active and segment.size == 0
        if is_empty_active or log.high_watermark < end or not is_due(segment):
            break
        due.append(segment)
    return due


def _below(log: LogState, log_start_offset: int) -> list[Segment]:
    """Take the segments that end at or below the start offset; never the active one."""
    bases = log.segments.base_offsets
    count = 0
    while count + 1 < len(bases) and bases[count + 1] <= log_start_offset:
        count += 1
    return [log.segments[number] for number in range(count)]
