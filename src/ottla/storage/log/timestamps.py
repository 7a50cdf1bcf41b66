"""Offsets by timestamp, including the special timestamps of ListOffsets.

Kafka: UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.protocol.offset_timestamps import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from ottla.records.batch import NO_TIMESTAMP, TimestampType
from ottla.records.batches import batch_at
from ottla.records.record_stream import LargeRecord, RecordStream
from ottla.records.scan import outline_records, scan_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.records.batch import RecordBatch
    from ottla.records.record_stream import RecordRun
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.segments.segment import Segment
    from ottla.storage.segments.source import ReadableSegment

BATCH_LIMIT_BYTES: Final = 100 << 20
_RUN_RECORDS: Final = 1024
_MALFORMED: Final = 1  # as in records/scan.py, whose constants are C's where it is compiled


class TimestampAndOffset(NamedTuple):
    """An offset, the timestamp of its record (-1 for the special ones) and its leader epoch."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> TimestampAndOffset | None:
    """Return the first record at or after timestamp; None when there is none.

    LATEST_TIMESTAMP is the log end: the caller, which knows the isolation level, uses the high
    watermark or the last stable offset instead. LATEST_TIERED_TIMESTAMP and
    EARLIEST_PENDING_UPLOAD_TIMESTAMP are offset -1 for a topic that is not tiered. Other
    timestamps are searched in local segments.
    """
    epochs = log.leader_epochs
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        is_local = timestamp == EARLIEST_LOCAL_TIMESTAMP
        start = log.local_log_start_offset if is_local else log.log_start_offset
        return TimestampAndOffset(NO_TIMESTAMP, start, epochs.epoch_for_offset(start))
    if timestamp == LATEST_TIMESTAMP:
        return TimestampAndOffset(NO_TIMESTAMP, log.log_end_offset, epochs.latest_epoch)
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return _copied(log, is_next=timestamp == EARLIEST_PENDING_UPLOAD_TIMESTAMP)
    if timestamp == MAX_TIMESTAMP:
        return _record_with_max_timestamp(log)
    segment = segment_reaching(log, timestamp)
    return None if segment is None else find_in(segment, timestamp, log.log_start_offset)


def _copied(log: PartitionLog, *, is_next: bool) -> TimestampAndOffset:
    """Return the last offset in remote storage, or the next one to be copied; -1 unless known."""
    offset = log.highest_remote_offset if log.config.is_tiered else -1
    if is_next and offset >= 0:
        offset = max(offset + 1, log.log_start_offset)
    elif is_next and log.config.is_tiered and log.local_log_start_offset == log.log_start_offset:
        offset = log.log_start_offset  # else the leader does not know yet what was copied
    epoch = log.leader_epochs.epoch_for_offset(offset) if offset >= 0 else -1
    return TimestampAndOffset(NO_TIMESTAMP, offset, epoch)


def segment_reaching(log: PartitionLog, timestamp: int) -> ReadableSegment | None:
    """Return the first segment, from the log's start on, with a record at or after timestamp."""
    segments = log.readable
    for number, segment in enumerate(segments.ordered):
        is_below = segments.end_of(number, log.log_end_offset) <= log.log_start_offset
        if not is_below and segment.max_timestamp >= timestamp:
            return segment
    return None


def newest_segment(log: PartitionLog) -> Segment:
    """Return the first segment with the largest timestamp; of local ones, as in Kafka."""
    return max(log.segments, key=lambda segment: segment.max_timestamp)


def find_in(
    segment: ReadableSegment, timestamp: int, start_offset: int
) -> TimestampAndOffset | None:
    """Return the first record of a segment at or after timestamp, from an offset on."""
    before = segment.position_before(timestamp)
    for header in segment.walk(max(before, start_offset)):
        if header.max_timestamp >= timestamp:
            data = segment.file.read(header.position, header.size)
            found = find_in_batch(data, timestamp, start_offset)
            if found is not None:
                return found
    return None


def _record_with_max_timestamp(log: PartitionLog) -> TimestampAndOffset | None:
    """Return the first record of the newest timestamp (KIP-734)."""
    newest = newest_segment(log)
    if newest.max_timestamp < 0:
        return None
    header = newest.batch_at(newest.max_timestamp_offset)
    if header is None:
        return None
    data = newest.file.read(header.position, header.size)
    return find_in_batch(data, newest.max_timestamp, 0)


def find_in_batch(data: bytes, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
    """Return the first record of a batch at or after timestamp, from an offset on."""
    batch = batch_at(memoryview(data), 0)
    for found, offset in _times(batch, timestamp):
        if found >= timestamp and offset >= start_offset:
            return TimestampAndOffset(found, offset, batch.leader_epoch)
    return None


def _times(batch: RecordBatch, timestamp: int) -> Iterator[tuple[int, int]]:
    """Yield timestamp and offset of each record, except in runs that end before timestamp.

    A batch may hold millions of records: decoding all of them takes seconds.
    """
    if batch.magic < 2:
        for record in batch.records(BATCH_LIMIT_BYTES):
            yield record.timestamp, record.offset
        return
    if not batch.record_count:  # compaction removed all records: there is nothing to decompress
        return
    chunks = iter((memoryview(batch.decompressed_payload(BATCH_LIMIT_BYTES)),))
    is_log_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    runs = RecordStream(
        chunks, batch.record_count, lambda _pieces: None, max_run_records=_RUN_RECORDS
    )
    for run in runs:
        if is_log_append_time or isinstance(run, LargeRecord) or _reaches(run, batch, timestamp):
            for offset_delta, delta, _, _ in _outlines(run):
                found = batch.max_timestamp if is_log_append_time else batch.base_timestamp + delta
                yield found, batch.base_offset + offset_delta


def _reaches(run: RecordRun, batch: RecordBatch, timestamp: int) -> bool:
    """Whether a record of a run is as new as timestamp; also for records that are malformed."""
    first_index, count, view, start, end = run
    base = batch.base_timestamp
    # whether the times are within a range, here 0 to 0, does not matter
    flags, largest, _ = scan_records(view, start, end, count, base, 0, 0, False, first_index)
    return bool(flags & _MALFORMED) or largest >= timestamp


def _outlines(run: RecordRun | LargeRecord) -> list[tuple[int, int, int, int]]:
    """Return the deltas and sizes of records; CorruptMessage when they are malformed."""
    if isinstance(run, LargeRecord):
        return [run[1:]]
    first_index, count, view, start, end = run
    return outline_records(view, start, end, first_index, count)
