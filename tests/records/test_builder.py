"""Batches built at once, and again after compaction."""

from __future__ import annotations

import pytest

from ottla.records.batch import RecordBatch, TimestampType
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from tests.records.batch_changes import rebuild_batch

ROWS = [(100 + index, b"k%d" % index, b"v" * index, (("h", b"x"),)) for index in range(6)]


def test_append_time_is_everyones() -> None:
    """Readers see the append time; the deltas of the producer stay below it."""
    data = encode_batch(ROWS, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=9)
    assert {record.timestamp for record in RecordBatch(data).records()} == {9}
    assert RecordBatch(data).base_timestamp == 100


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_compaction_keeps_offsets(codec: Compression) -> None:
    """What compaction leaves keeps its offsets, the batch its range, sequence and flags."""
    data = encode_batch(
        ROWS, base_offset=50, leader_epoch=4, compression=codec, producer_id=2, base_sequence=1
    )
    batch = RecordBatch(data)
    kept = [record for record in batch.records() if record.offset in (52, 55)]
    left = RecordBatch(rebuild_batch(batch, kept))
    left.check_crc()
    assert left.records() == kept
    assert (left.base_offset, left.last_offset, left.last_sequence) == (50, 55, 6)
    assert (left.leader_epoch, left.compression, left.max_timestamp) == (4, codec, 105)


def test_compaction_may_leave_no_record() -> None:
    """An empty batch stays for its producer's last sequence."""
    batch = RecordBatch(encode_batch(ROWS, compression=Compression.LZ4, base_sequence=3))
    left = RecordBatch(rebuild_batch(batch, []))
    assert left.records() == []
    assert (left.record_count, left.last_offset, left.size) == (0, 5, 61)
    assert left.last_sequence == 8


def test_delete_horizon_stands_in_the_base_timestamp() -> None:
    """KIP-534: the flag is set, timestamps stay, and a later rebuild keeps the horizon."""
    batch = RecordBatch(encode_batch(ROWS))
    left = RecordBatch(rebuild_batch(batch, batch.records(), delete_horizon_ms=777))
    assert left.delete_horizon_ms == 777
    assert left.records() == batch.records()
    again = RecordBatch(rebuild_batch(left, left.records()[:2]))
    assert again.delete_horizon_ms == 777
    assert again.records() == batch.records()[:2]
