"""Formats 0 and 1, which are read and never written; Kafka's own are in tests/conformance."""

from __future__ import annotations

from struct import pack
from zlib import crc32

import pytest

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.batch import TimestampType
from ottla.records.batches import LegacyBatch, iterate_batches
from ottla.records.compression import Compression, compress


def message(
    magic: int,
    offset: int,
    value: bytes | None,
    *,
    key: bytes | None = None,
    attributes: int = 0,
    timestamp: int = 0,
) -> bytes:
    """Return one message of an old format."""

    def field(data: bytes | None) -> bytes:
        return pack(">i", -1) if data is None else pack(">i", len(data)) + data

    body = pack(">bb", magic, attributes) + (pack(">q", timestamp) if magic else b"")
    body += field(key) + field(value)
    return pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def test_plain_messages() -> None:
    """A message is a batch of one; format 0 has no timestamp."""
    data = message(0, 5, b"v", key=b"k") + message(1, 6, None, timestamp=77)
    old, newer = iterate_batches(data)
    for batch in (old, newer):
        batch.check_crc()
        assert isinstance(batch, LegacyBatch)
        assert (batch.record_count, batch.last_offset_delta) == (1, 0)
        assert not batch.is_control
        assert not batch.is_transactional
        assert batch.delete_horizon_ms is None
    assert old.timestamp_type is TimestampType.NO_TIMESTAMP_TYPE
    assert [tuple(record) for record in old.records()] == [(5, -1, b"k", b"v", ())]
    assert [tuple(record) for record in newer.records()] == [(6, 77, None, None, ())]
    assert (newer.max_timestamp, newer.next_offset) == (77, 7)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_wrapped_messages(codec: Compression) -> None:
    """Inner offsets of format 1 count from the first; the wrapper has the last."""
    inner = b"".join(message(1, index, b"v%d" % index, timestamp=index) for index in range(3))
    packed = bytes(compress(codec, inner))
    for attributes, times in ((int(codec), [0, 1, 2]), (int(codec) | 8, [50, 50, 50])):
        wrapper = message(1, 92, packed, attributes=attributes, timestamp=50)
        (batch,) = iterate_batches(wrapper)
        assert (batch.base_offset, batch.last_offset, batch.record_count) == (90, 92, 3)
        assert [record.offset for record in batch.records()] == [90, 91, 92]
        assert [record.timestamp for record in batch.records()] == times


def test_wrapped_messages_of_format_0_have_absolute_offsets() -> None:
    """Gaps that compaction left between them stay."""
    inner = message(0, 3, b"a") + message(0, 9, b"b")
    (batch,) = iterate_batches(
        message(0, 9, bytes(compress(Compression.GZIP, inner)), attributes=1)
    )
    assert [record.offset for record in batch.records()] == [3, 9]


def test_old_formats_are_only_read() -> None:
    """A producer cannot be set."""
    batch = LegacyBatch(bytearray(message(1, 1, b"v")))
    with pytest.raises(KafkaError) as error:
        batch.set_producer(5, 0, 0)
    assert error.value.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_corrupt_messages() -> None:
    """Cut, lying or oddly wrapped messages are corrupt."""
    data = message(1, 1, b"value", key=b"key")
    for end in range(len(data)):
        with pytest.raises(CorruptMessage):
            LegacyBatch(data[:end])
    lying = bytearray(data)
    lying[26:30] = pack(">i", 100)
    with pytest.raises(CorruptMessage):
        LegacyBatch(lying).records()
    for inner in (b"", message(0, 1, b"v"), data[:-1]):
        packed = bytes(compress(Compression.GZIP, inner))
        with pytest.raises(CorruptMessage):
            LegacyBatch(message(1, 1, packed, attributes=1)).records()
    with pytest.raises(CorruptMessage):
        LegacyBatch(message(1, 1, b"x", attributes=4)).records()
