"""Batches built at once, record by record, and again after compaction."""

from __future__ import annotations

import pytest

from ottla.records.batch import RecordBatch, TimestampType
from ottla.records.builder import BatchBuilder, encode_batch, rebuild_batch
from ottla.records.compression import Compression

ROWS = [(100 + index, b"k%d" % index, b"v" * index, (("h", b"x"),)) for index in range(6)]


@pytest.mark.parametrize("codec", list(Compression))
def test_builder_and_encode_batch_agree(codec: Compression) -> None:
    """Record by record or all at once, the bytes are the same."""
    builder = BatchBuilder(10_000, compression=codec)
    for row in ROWS:
        assert builder.try_append(*row)
    built = builder.build(producer_id=3, producer_epoch=1, base_sequence=7, transactional=True)
    assert built == encode_batch(
        ROWS,
        compression=codec,
        producer_id=3,
        producer_epoch=1,
        base_sequence=7,
        transactional=True,
    )
    assert builder.max_timestamp == 105


def test_builder_stops_at_its_limit() -> None:
    """A batch never passes its limit, except that a single record always fits."""
    builder = BatchBuilder(500)
    while builder.try_append(1, b"k", bytes(50)):
        pass
    data = builder.build()
    assert len(data) <= 500 < len(data) + 61
    assert len(data) == builder.plain_bytes == builder.estimated_bytes
    large = BatchBuilder(10)
    assert large.try_append(1, None, bytes(1000))
    assert not large.try_append(1, None, b"")
    assert RecordBatch(large.build()).record_count == 1


def test_builder_trusts_the_ratio() -> None:
    """With a ratio of one half, about twice as many records fit."""
    counts = []
    for ratio in (1.0, 0.5):
        builder = BatchBuilder(2000, compression=Compression.ZSTD, ratio=ratio)
        while builder.try_append(1, None, bytes(100)):
            pass
        counts.append(builder.record_count)
    assert counts[1] > 1.8 * counts[0]


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
