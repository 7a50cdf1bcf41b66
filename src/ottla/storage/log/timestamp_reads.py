"""Reads of inactive segments, for a search by timestamp and for retention, as jobs for a worker.

The largest timestamp of a segment is not known before its time index and its last batches were
read, and the index of an old segment is on the disk only. The jobs read with objects of their own
over the same files, and change none of them: `offset_for_timestamp` then finds all in memory.

Kafka: its request handler threads, which read the indexes themselves (LazyIndex).
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import CorruptMessage
from ottla.protocol.offset_timestamps import MAX_TIMESTAMP
from ottla.storage.log.timestamps import find_in, newest_segment, segment_reaching

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.segments.segment import Segment


class TimestampRead(NamedTuple):
    """Reads the largest timestamps of segments: `read` in a worker, then `done` on the loop."""

    volume: Hashable
    read: Callable[[], None]
    done: Callable[[], None]


def largest_timestamps(log: PartitionLog) -> TimestampRead | None:
    """Return the read of all inactive segments; None when their timestamps are known."""
    return _read_of(log, log.segments)


def oldest_timestamp(log: PartitionLog) -> TimestampRead | None:
    """Return the read of the oldest segment, of which retention needs the age; None when known."""
    return _read_of(log, [log.segments[0]])


def oldest_timestamps(log: PartitionLog, max_count: int) -> TimestampRead | None:
    """Return the read of the oldest segments, of which retention deletes some; None when known."""
    return _read_of(log, islice(log.segments, max_count))


def _read_of(log: PartitionLog, segments: Iterable[Segment]) -> TimestampRead | None:
    active = log.segments.active
    unread = [
        segment for segment in segments if segment is not active and not segment.knows_max_timestamp
    ]
    if not unread:
        return None
    copies = [(segment, segment.reopened(log.config)) for segment in unread]

    def read() -> None:
        for _, copy in copies:
            with suppress(OSError, CorruptMessage), copy.opened():
                _ = copy.max_timestamp

    def done() -> None:
        for segment, copy in copies:
            segment.take_max_timestamp(copy)

    return TimestampRead(log.directory.volume, read, done)


def place_of_timestamp(log: PartitionLog, timestamp: int) -> Callable[[], None] | None:
    """Return a job that reads where the search ends, once the largest timestamps are known."""
    if not all(segment.knows_max_timestamp for segment in log.readable.ordered):
        return None
    is_newest = timestamp == MAX_TIMESTAMP
    segment = newest_segment(log) if is_newest else segment_reaching(log, timestamp)
    if segment is None or segment is log.segments.active:
        return None
    if is_newest:
        timestamp = segment.max_timestamp
    copy, start_offset = segment.reopened(log.config), log.log_start_offset

    def read() -> None:
        with suppress(OSError, CorruptMessage), copy.opened():
            find_in(copy, timestamp, start_offset)

    return read
