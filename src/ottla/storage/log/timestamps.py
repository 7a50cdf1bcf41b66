"""Offsets by timestamp, including the special timestamps of ListOffsets.

Kafka: UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.offset_timestamps import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from ottla.records.batch import NO_TIMESTAMP, RecordBatch

if TYPE_CHECKING:
    from ottla.records.record import Record
    from ottla.storage.batches import BatchHeader
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.segments.segment import Segment

BATCH_LIMIT_BYTES = 100 << 20


class TimestampAndOffset(NamedTuple):
    """An offset, the timestamp of its record (-1 for the special ones) and its leader epoch."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> TimestampAndOffset | None:
    """Return the first record at or after timestamp; None when there is none.

    LATEST_TIMESTAMP is the log end: the caller, which knows the isolation level, uses the high
    watermark or the last stable offset instead. Without a remote
    tier LATEST_TIERED_TIMESTAMP is offset -1.
    """
    epochs = log.leader_epochs
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        start = log.log_start_offset
        return TimestampAndOffset(NO_TIMESTAMP, start, epochs.epoch_for_offset(start))
    if timestamp == LATEST_TIMESTAMP:
        return TimestampAndOffset(NO_TIMESTAMP, log.log_end_offset, epochs.latest_epoch)
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return TimestampAndOffset(NO_TIMESTAMP, -1, -1)
    if timestamp == MAX_TIMESTAMP:
        return _record_with_max_timestamp(log)
    for number, segment in enumerate(log.segments):
        is_below = log.segments.end_of(number, log.log_end_offset) <= log.log_start_offset
        if not is_below and segment.max_timestamp >= timestamp:
            return find_in(segment, timestamp, log.log_start_offset)
    return None


def find_in(segment: Segment, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
    """Return the first record of a segment at or after timestamp, from an offset on."""
    before = segment.position_before(timestamp)
    for header in segment.walk(max(before, start_offset)):
        if header.max_timestamp < timestamp:
            continue
        for record in _records(segment, header):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampAndOffset(record.timestamp, record.offset, header.leader_epoch)
    return None


def _record_with_max_timestamp(log: PartitionLog) -> TimestampAndOffset | None:
    """Return the first record of the newest timestamp (KIP-734)."""
    newest = max(log.segments, key=lambda segment: segment.max_timestamp)
    if newest.max_timestamp < 0:
        return None
    header = newest.batch_at(newest.max_timestamp_offset)
    if header is None:
        return None
    for record in _records(newest, header):
        if record.timestamp == newest.max_timestamp:
            return TimestampAndOffset(record.timestamp, record.offset, header.leader_epoch)
    return None


def _records(segment: Segment, header: BatchHeader) -> list[Record]:
    data = segment.file.read(header.position, header.size)
    return RecordBatch(data).records(BATCH_LIMIT_BYTES)
