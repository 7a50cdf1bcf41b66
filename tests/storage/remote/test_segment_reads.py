"""Reads of a segment in remote storage equal those of the local segment that it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ottla.errors import CorruptMessage
from ottla.records.batches import iterate_batches
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.timestamps import find_in
from ottla.storage.remote.segment_reads import (
    SegmentPart,
    aborted_transactions,
    offset_for_timestamp,
    read_records,
)
from ottla.storage.remote.storage_manager import (
    IndexKind,
    RemoteResourceNotFoundError,
    RemoteStorageError,
)
from tests.storage.logs import NOW_MS, content, end, new_log, put, send
from tests.storage.remote.tiers import MemoryTier

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.remote.segment import RemoteSegment
    from ottla.storage.remote.segment_reads import RemoteRecords


@pytest.fixture
def log() -> PartitionLog:
    log = new_log()
    for number in range(30):
        put(log, 2, timestamp=NOW_MS + number * 10)
    log.update_high_watermark(60)
    return log


def read(
    tier: MemoryTier,
    segment: RemoteSegment,
    offset: int,
    max_bytes: int,
    *,
    min_one_message: bool = True,
) -> RemoteRecords | None:
    with tier.opened(segment) as indexes:
        return read_records(
            tier, indexes, whole(segment), offset, max_bytes, min_one_message=min_one_message
        )


def whole(segment: RemoteSegment) -> SegmentPart:
    return SegmentPart(segment, segment.end_offset + 1)


@pytest.mark.parametrize("min_one_message", [True, False])
@pytest.mark.parametrize("max_bytes", [0, 1, 200, 333, 100_000])
def test_every_offset_gives_the_bytes_of_the_local_segment(
    log: PartitionLog, max_bytes: int, *, min_one_message: bool
) -> None:
    """With any limit; where a batch is skipped as well as where the index points at it."""
    tier = MemoryTier()
    segment = tier.copy(log, log.segments[1])
    for offset in range(segment.start_offset, segment.end_offset + 1):
        local, _ = log.reads.find(offset, max_bytes, FetchIsolation.HIGH_WATERMARK, min_one_message)
        found = read(tier, segment, offset, max_bytes, min_one_message=min_one_message)
        assert found is not None
        assert found.records == content(local)
        if found.records:
            whole = list(iterate_batches(memoryview(found.records), partial_tail=True))
            assert whole[0].base_offset <= offset <= whole[0].last_offset
            assert found.first_offset == whole[0].base_offset
            assert whole[-1].last_offset < found.end_offset <= segment.end_offset + 1


def test_after_the_last_batch_there_is_nothing(log: PartitionLog) -> None:
    """The next segment has what follows."""
    tier = MemoryTier()
    segment = tier.copy(log, log.segments[0])
    assert read(tier, segment, segment.end_offset + 1, 100) is None


def damaged(tier: MemoryTier, segment: RemoteSegment, position: int) -> None:
    data = bytearray(tier.logs[segment.segment_id])
    data[position] ^= 0x10
    tier.logs[segment.segment_id] = bytes(data)


def test_what_is_damaged_is_never_served(log: PartitionLog) -> None:
    """Each byte in turn: of the size, the offsets, the format, the checksum, the records."""
    tier = MemoryTier()
    segment = tier.copy(log, log.segments[0])
    whole = tier.logs[segment.segment_id]
    starts = [one.position for one in iterate_batches(memoryview(whole))]
    # the leader epochs, which brokers write: the checksum omits them
    not_covered = {start + at for start in starts for at in range(12, 16)}
    for position in range(len(whole)):
        damaged(tier, segment, position)
        if position not in not_covered:
            with pytest.raises((CorruptMessage, RemoteStorageError)):
                read(tier, segment, segment.start_offset, 1 << 20)
        tier.logs[segment.segment_id] = whole


def test_a_segment_that_is_too_short_is_an_error(log: PartitionLog) -> None:
    """Not the end of the data: a consumer would wait there for ever."""
    tier = MemoryTier()
    segment = tier.copy(log, log.segments[0])
    tier.logs[segment.segment_id] = tier.logs[segment.segment_id][:-1]
    with pytest.raises(RemoteStorageError, match="ends 1 bytes early"):
        read(tier, segment, segment.start_offset, 1 << 20)
    tier.logs[segment.segment_id] = b""
    with pytest.raises(RemoteStorageError):
        read(tier, segment, segment.start_offset, 1 << 20)


def test_a_segment_of_other_offsets_is_an_error(log: PartitionLog) -> None:
    """Sound batches of another segment."""
    tier = MemoryTier()
    segment, other = tier.copy(log, log.segments[0], 0), tier.copy(log, log.segments[1], 1)
    tier.logs[segment.segment_id] = tier.logs[other.segment_id]
    with pytest.raises(CorruptMessage, match="should be"):
        read(tier, segment, segment.start_offset, 100)


def test_an_index_that_points_behind_the_segment_is_an_error(log: PartitionLog) -> None:
    """Whatever lies there."""
    tier = MemoryTier()
    segment = replace(tier.copy(log, log.segments[0]), size_bytes=100)
    with pytest.raises(CorruptMessage):
        read(tier, segment, segment.end_offset, 100)
    del tier.logs[segment.segment_id]
    with pytest.raises(RemoteResourceNotFoundError):
        read(tier, segment, segment.start_offset, 100)


def test_an_index_that_points_behind_an_offset_is_an_error(log: PartitionLog) -> None:
    """Records would be left out without a word."""
    tier = MemoryTier()
    segment = tier.copy(log, log.segments[0])
    second = list(iterate_batches(memoryview(tier.logs[segment.segment_id])))[1].position
    tier.indexes[segment.segment_id, IndexKind.OFFSET] = bytes(4) + second.to_bytes(4)
    with pytest.raises(CorruptMessage, match="points behind offset"):
        read(tier, segment, segment.start_offset, 1 << 20)


def test_times_are_found_as_in_the_local_segment(log: PartitionLog) -> None:
    """Each time of the segment, from any offset on."""
    tier = MemoryTier()
    local = log.segments[1]
    segment = tier.copy(log, local)
    with tier.opened(segment) as indexes:
        for timestamp in range(NOW_MS - 5, NOW_MS + 305, 5):
            for start_offset in (0, segment.start_offset + 3, segment.end_offset):
                found = offset_for_timestamp(tier, indexes, whole(segment), timestamp, start_offset)
                assert found == find_in(local, timestamp, start_offset)


def test_aborts_are_found_as_in_the_local_segment() -> None:
    """Those that overlap the records, and whether later segments may have more."""
    log = new_log()
    for number in range(12):
        send(log, 7, number * 2, 2, transactional=True)
        end(log, 7, commit=number % 2 == 0)
        log.update_high_watermark(log.log_end_offset)
    log.roll(NOW_MS)
    tier = MemoryTier()
    segment = tier.copy(log, log.segments[0])
    assert not segment.is_transaction_index_empty
    assert (segment.segment_id, IndexKind.TRANSACTION) in tier.indexes
    limit = segment.end_offset + 1
    with tier.opened(segment) as indexes:
        for offset in range(segment.start_offset, limit):
            found, has_more = aborted_transactions(indexes, whole(segment), offset, limit)
            assert found == log.segments[0].transaction_index.overlapping(offset, limit)
            assert has_more == log.segments[0].transaction_index.is_followed_below(limit)
