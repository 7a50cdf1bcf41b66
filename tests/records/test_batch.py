"""The header view, patches in place, and walks over batches."""

from __future__ import annotations

import pytest

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.batch import HEADER_BYTES, RecordBatch, TimestampType, add_to_sequence
from ottla.records.batches import iterate_batches
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression

ROWS = [(100 + index, b"k%d" % index, b"v" * index, ()) for index in range(5)]


def test_header_fields() -> None:
    """Every field is read from its place."""
    data = encode_batch(
        ROWS,
        base_offset=40,
        leader_epoch=6,
        compression=Compression.LZ4,
        producer_id=9,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        transactional=True,
        control=True,
    )
    batch = RecordBatch(memoryview(b"...") and b"..." + bytes(data), 3)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (40, 44, 45)
    assert (batch.leader_epoch, batch.magic, batch.record_count) == (6, 2, 5)
    assert (batch.base_timestamp, batch.max_timestamp) == (100, 104)
    assert (batch.producer_id, batch.producer_epoch, batch.has_producer_id) == (9, 2, True)
    assert (batch.base_sequence, batch.last_sequence) == (2**31 - 2, 2)
    assert (batch.is_transactional, batch.is_control) == (True, True)
    assert batch.compression is Compression.LZ4
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert batch.delete_horizon_ms is None
    assert batch.size == len(data) == len(batch.buffer)
    assert "base_offset=40" in repr(batch)
    batch.check_crc()


def test_a_flipped_bit_fails_the_checksum() -> None:
    """Whatever the checksum covers cannot change unseen."""
    data = encode_batch(ROWS)
    for position in range(17, len(data)):
        broken = bytearray(data)
        broken[position] ^= 0x10
        with pytest.raises(CorruptMessage, match="stored crc"):
            RecordBatch(broken).check_crc()


def test_lies_about_size_and_magic_are_corrupt() -> None:
    """A header must be complete and have a valid size and a known magic."""
    data = encode_batch(ROWS)
    with pytest.raises(CorruptMessage):
        RecordBatch(data[: HEADER_BYTES - 1])
    with pytest.raises(CorruptMessage):
        RecordBatch(data[:-1])
    short = bytearray(data)
    short[8:12] = (48).to_bytes(4, "big")
    with pytest.raises(CorruptMessage):
        RecordBatch(short)
    magic = bytearray(data)
    magic[16] = 3
    with pytest.raises(CorruptMessage, match="Invalid magic"):
        RecordBatch(magic)


def test_walk_over_batches() -> None:
    """Batches are consecutive; a truncated one raises unless partial_tail is set."""
    second = encode_batch(ROWS[:1], base_offset=5)
    data = bytes(encode_batch(ROWS) + second)
    assert [batch.base_offset for batch in iterate_batches(data)] == [0, 5]
    assert [batch.base_offset for batch in iterate_batches(data, len(data) - len(second))] == [5]
    for end in range(len(data) - len(second) + 1, len(data)):
        found = list(iterate_batches(data[:end], partial_tail=True))
        assert len(found) == 1
        with pytest.raises(CorruptMessage):
            list(iterate_batches(data[:end]))
    tiny = bytearray(data)
    tiny[8:12] = (13).to_bytes(4, "big")
    with pytest.raises(CorruptMessage, match="minimum record overhead"):
        list(iterate_batches(tiny, partial_tail=True))


def test_a_compressed_batch_is_bounded() -> None:
    """Records that decompress beyond the limit are not returned."""
    data = encode_batch([(1, None, bytes(100_000), ())], compression=Compression.ZSTD)
    assert len(RecordBatch(data).records(200_000)) == 1
    with pytest.raises(KafkaError) as error:
        RecordBatch(data).records(50_000)
    assert error.value.code == ErrorCode.INVALID_RECORD


def test_sequences_wrap() -> None:
    """2^31 - 1 is followed by 0."""
    assert add_to_sequence(2**31 - 1, 1) == 0
    assert add_to_sequence(5, 3) == 8


def test_timestamp_types_have_kafkas_names() -> None:
    """The spelling of message.timestamp.type."""
    assert [kind.config_name for kind in TimestampType] == [
        "NoTimestampType",
        "CreateTime",
        "LogAppendTime",
    ]
