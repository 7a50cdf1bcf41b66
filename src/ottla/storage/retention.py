"""Which segments are old enough to go: by time, by size, by the log's start.

Only whole segments below the high watermark go; the active one is rolled first when it is due.
Kafka: UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.storage.log_state import LogState
    from ottla.storage.segment import Segment


def segments_to_delete(log: LogState, now_ms: int) -> list[Segment]:
    """Return the segments that retention.ms, retention.bytes or the start offset give up."""
    due: list[Segment] = []
    if log.config.deletes_by_retention:
        due = _due(log, _older_than(now_ms, log.config.retention_ms))
        by_size = _due(log, _above_size(log, log.config.retention_bytes))
        due = max(due, by_size, key=len)
    below_start = _below(log, log.log_start_offset)
    return max(due, below_start, key=len)


def _older_than(now_ms: int, retention_ms: int) -> Callable[[Segment], bool]:
    if retention_ms < 0:
        return lambda _: False

    def is_old(segment: Segment) -> bool:
        newest = segment.max_timestamp
        return now_ms - (newest if newest >= 0 else segment.created_ms) > retention_ms

    return is_old


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
