"""Offsets by timestamp: what is found, and in which batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.errors import CorruptMessage
from ottla.records.batch import RECORD_COUNT_POSITION
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from ottla.storage.log.config import LogConfig
from ottla.testing.disk import SimulatedDisk
from tests.records.test_legacy import message
from tests.storage.logs import NOW_MS, SMALL, new_log, put


def test_offsets_by_timestamp() -> None:
    """The first record at or after a time; the special times; None behind the newest."""
    log = new_log()
    for number in range(30):
        put(log, 2, timestamp=NOW_MS + number * 10, epoch=number // 10)
    found = log.reads.offset_for_timestamp(NOW_MS + 95)
    assert found is not None
    assert tuple(found) == (NOW_MS + 100, 20, 1)
    assert log.reads.offset_for_timestamp(NOW_MS + 291) is None
    special = [log.reads.offset_for_timestamp(value) for value in (-1, -2, -3, -4, -5, -6)]
    assert [one and tuple(one) for one in special] == [
        (-1, 60, 2),
        (-1, 0, 0),
        (NOW_MS + 290, 58, 2),
        (-1, 0, 0),
        (-1, -1, -1),
        (-1, -1, -1),
    ]
    log.update_high_watermark(60)
    log.truncation.delete_records_before(30)
    start = log.reads.offset_for_timestamp(0)
    assert start is not None
    assert start.offset == 30


def test_special_timestamps_of_a_tiered_log() -> None:
    """The last offset copied and the next one; -1 until the leader knows what was copied."""
    tiered = replace(SMALL, remote_storage_enable=True)
    log = new_log(config=tiered)
    for number in range(30):
        put(log, 2, timestamp=NOW_MS, epoch=number // 10)
    log.update_high_watermark(60)

    def copied() -> list[tuple[int, int]]:
        found = [log.reads.offset_for_timestamp(value) for value in (-4, -5, -6)]
        return [one[1:] for one in found if one is not None]

    assert copied() == [(0, 0), (-1, -1), (0, 0)]
    second, third = log.segments.base_offsets[1:3]
    log.copied_to_tier(second - 1)
    first_epoch = log.leader_epochs.epoch_for_offset(second)
    assert copied() == [(0, 0), (second - 1, 0), (second, first_epoch)]
    log.truncation.delete_records_before(third)
    assert copied()[2] == (third, log.leader_epochs.epoch_for_offset(third))
    log = new_log(config=tiered)
    for _ in range(20):
        put(log, 2)
    log.update_high_watermark(40)
    log.retire_segments(log.segments.ordered[:1], NOW_MS)
    start = log.local_log_start_offset
    assert start > log.log_start_offset
    assert copied() == [(start, 0), (-1, -1), (-1, -1)]


def test_messages_of_old_formats_are_found_by_timestamp() -> None:
    """A directory of an old broker may still hold them: each is a batch of one."""
    log = new_log(config=LogConfig())
    old = b"".join(message(1, number, b"v", timestamp=NOW_MS + number) for number in range(5))
    log.writes.append_as_follower(old, leader_epoch=0, now_ms=NOW_MS)
    for timestamp in (NOW_MS + 3, NOW_MS + 4, -3):
        found = log.reads.offset_for_timestamp(timestamp)
        offset = 4 if timestamp == -3 else timestamp - NOW_MS
        assert found == (NOW_MS + offset, offset, -1)


def test_trailing_bytes_are_refused_in_a_search_by_timestamp() -> None:
    """The header has one record less than the batch: as for consumers, and for Kafka."""
    disk = SimulatedDisk()
    log = new_log(disk, config=LogConfig())
    records = [(NOW_MS + number * 10, None, b"v", ()) for number in range(2)]
    log.writes.append_as_follower(bytes(encode_batch(records)), leader_epoch=0, now_ms=NOW_MS)
    assert log.reads.offset_for_timestamp(NOW_MS + 5) == (NOW_MS + 10, 1, -1)
    _damage(disk, RECORD_COUNT_POSITION, (1).to_bytes(4))
    with pytest.raises(CorruptMessage, match="records still remaining"):
        log.reads.offset_for_timestamp(NOW_MS + 5)


def test_a_batch_without_records_is_not_decompressed_in_a_search_by_timestamp() -> None:
    """Compaction leaves the header of such batches; nothing need follow it."""
    disk = SimulatedDisk()
    log = new_log(disk, config=LogConfig())
    batch = bytes(encode_batch([(NOW_MS, None, b"v", ())], compression=Compression.GZIP))
    log.writes.append_as_follower(batch, leader_epoch=0, now_ms=NOW_MS)
    _damage(disk, RECORD_COUNT_POSITION, bytes(8))
    assert log.reads.offset_for_timestamp(NOW_MS) is None


def test_a_batch_of_append_time_is_found_by_the_time_of_its_header() -> None:
    """All its records have that time, whatever their own deltas are."""
    log = new_log(config=LogConfig(message_timestamp_type="LogAppendTime"))
    put(log, 3, timestamp=NOW_MS - 500, now_ms=NOW_MS)
    assert log.reads.offset_for_timestamp(NOW_MS - 100) == (NOW_MS, 0, 0)
    log.update_high_watermark(3)
    log.truncation.delete_records_before(2)
    assert log.reads.offset_for_timestamp(NOW_MS) == (NOW_MS, 2, 0)
    assert log.reads.offset_for_timestamp(NOW_MS + 1) is None


def _damage(disk: SimulatedDisk, position: int, data: bytes) -> None:
    disk.open("t-0/00000000000000000000.log").write_at(position, data)


def test_max_timestamp_of_an_empty_log() -> None:
    """No record, no answer."""
    assert new_log().reads.offset_for_timestamp(-3) is None
