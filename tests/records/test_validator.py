"""The validator's own promises; what it shares with Kafka is compared in tests/conformance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records import scan
from ottla.records.batch import RecordBatch, TimestampType
from ottla.records.builder import assemble_batch, encode_batch
from ottla.records.compression import Compression, compress
from ottla.records.validation_rules import RecordValidationError, ValidationRules
from ottla.records.validator import (
    AppendOrigin,
    UnreadableRecords,
    validate,
)
from tests.records.batch_changes import set_attributes

if TYPE_CHECKING:
    from ottla.records.validator import ValidatedBatch
    from ottla.types import Buffer

ROWS = [(1000 + index, b"k%d" % index, b"v" * index, ()) for index in range(5)]
RULES = ValidationRules(topic_partition="t-0")
NOW = 10_000


def run(data: Buffer, rules: ValidationRules = RULES, **changes: Any) -> ValidatedBatch:
    """Validate with next offset 100 and epoch 7."""
    settings = {"next_offset": 100, "leader_epoch": 7, "now_ms": NOW, **changes}
    return validate(memoryview(data), rules=rules, **settings)


def refused(data: Buffer, rules: ValidationRules = RULES, **changes: Any) -> KafkaError:
    """Return the error."""
    with pytest.raises(KafkaError) as error:
        run(data, rules, **changes)
    return error.value


@pytest.mark.parametrize("codec", list(Compression))
def test_a_good_batch_is_patched_in_place(codec: Compression) -> None:
    """The answer is the very buffer that came in, with offset and epoch in it."""
    data = encode_batch(ROWS, compression=codec)
    before = bytes(data)
    found = run(memoryview(data))
    assert found.buffer.obj is data
    assert data[16:] == before[16:]
    batch = RecordBatch(data)
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (100, 104, 7)
    assert (found.first_offset, found.last_offset, found.record_count) == (100, 104, 5)
    assert found.max_timestamp == 1004
    assert found.log_append_time_ms == -1
    assert (found.position, found.size, found.last_sequence) == (0, len(data), -1)


def test_only_the_first_length_and_magic_are_explained() -> None:
    """As by Kafka, which says nothing in words of what is wrong further on."""
    good = bytes(encode_batch(ROWS))
    short, odd = good[:8] + b"\0\0\0\5" + good[12:], good[:16] + b"\3" + good[17:]
    code = ErrorCode.CORRUPT_MESSAGE
    for data, text in (
        (short, "Record size 5 is less than the minimum record overhead (14)"),
        (odd, "Invalid magic found in record: 3"),
        (good + short, code.text),
        (good + odd, code.text),
    ):
        error = refused(data)
        assert isinstance(error, UnreadableRecords)
        assert (error.code, error.message) == (code, text)


def test_read_only_bytes_are_copied() -> None:
    """Bytes from a file stay as they are."""
    data = bytes(encode_batch(ROWS))
    found = run(data)
    assert data[:8] == bytes(8)
    assert RecordBatch(found.buffer).base_offset == 100


def test_broker_time() -> None:
    """With LogAppendTime the header changes and nothing else."""
    data = encode_batch(ROWS)
    found = run(data, ValidationRules(timestamp_type=TimestampType.LOG_APPEND_TIME))
    batch = RecordBatch(found.buffer)
    batch.check_crc()
    assert (found.max_timestamp, found.log_append_time_ms) == (NOW, NOW)
    assert {record.timestamp for record in batch.records()} == {NOW}
    assert batch.payload == RecordBatch(encode_batch(ROWS)).payload


def test_another_codec_is_a_new_batch() -> None:
    """A topic's own codec is applied; the client's bytes stay untouched."""
    data = encode_batch(ROWS, producer_id=4, producer_epoch=1, base_sequence=9)
    rules = ValidationRules(compression_type=Compression.ZSTD, compression_level=1)
    found = run(data, rules)
    assert RecordBatch(data).base_offset == 0
    batch = RecordBatch(found.buffer)
    assert batch.compression is Compression.ZSTD
    assert [tuple(record[1:]) for record in batch.records()] == ROWS
    assert (batch.base_offset, found.last_sequence) == (100, 13)


def test_sizes() -> None:
    """Too large on arrival, and too large only after another codec made it grow."""
    data = encode_batch(ROWS)
    error = refused(data, ValidationRules(max_message_bytes=len(data) - 1))
    assert error.code == ErrorCode.MESSAGE_TOO_LARGE
    packed = encode_batch([(1, b"k", bytes(5000), ())], compression=Compression.GZIP)
    rules = ValidationRules(compression_type=Compression.NONE, max_message_bytes=1000)
    assert refused(packed, rules).code == ErrorCode.MESSAGE_TOO_LARGE
    assert (
        refused(packed, ValidationRules(max_decompressed_bytes=4000)).code
        == ErrorCode.INVALID_RECORD
    )


def test_checksum_comes_before_the_records() -> None:
    """A broken byte is CORRUPT_MESSAGE, which clients send again."""
    data = encode_batch(ROWS)
    data[-1] ^= 1
    assert isinstance(refused(data), CorruptMessage)


def test_base_offset_of_a_client_is_zero() -> None:
    """Only brokers give offsets; other appenders may leave one there."""
    data = encode_batch(ROWS, base_offset=3)
    assert refused(data).code == ErrorCode.INVALID_RECORD
    assert run(data, origin=AppendOrigin.COORDINATOR).first_offset == 100


def broken_payload(codec: Compression, payload: bytes, count: int = 1) -> bytearray:
    """Return a batch with good checksum and header around any payload."""
    return assemble_batch(
        payload,
        attributes=int(codec),
        record_count=count,
        last_offset_delta=count - 1,
        base_timestamp=1000,
        max_timestamp=1000,
    )


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_what_does_not_decompress_is_invalid(codec: Compression) -> None:
    """Bytes that are no stream of their codec are the client's fault, not ours."""
    assert refused(broken_payload(codec, b"nonsense")).code == ErrorCode.INVALID_RECORD
    assert refused(broken_payload(codec, b"")).code == ErrorCode.INVALID_RECORD


def test_unknown_codec_is_refused() -> None:
    """Codec ids 5 to 7 do not exist."""
    data = broken_payload(Compression.NONE, b"x")
    set_attributes(data, 6)
    assert refused(data).code == ErrorCode.INVALID_RECORD


def out_of_sequence(codec: Compression) -> bytearray:
    """Return a batch whose records have the offset deltas 0, 5, 1."""
    payload = bytearray()
    for delta in (0, 5, 1):
        scan.append_record(payload, delta, delta, b"k", b"v%d" % delta, b"\x00")
    return broken_payload(codec, bytes(compress(codec, payload)), 3)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_compressed_records_out_of_sequence_are_refused(codec: Compression) -> None:
    """A batch that keeps its codec must number its records from 0 on."""
    for target in (None, codec):
        error = refused(out_of_sequence(codec), ValidationRules(compression_type=target))
        assert error.code == ErrorCode.INVALID_RECORD
        assert "consecutive offsets" in error.message


@pytest.mark.parametrize(
    ("codec", "target"),
    [(Compression.NONE, Compression.NONE), (Compression.LZ4, Compression.ZSTD)],
)
def test_other_records_out_of_sequence_are_numbered_again(
    codec: Compression, target: Compression
) -> None:
    """Uncompressed records, and those that the broker compresses itself."""
    found = run(out_of_sequence(codec), rules=ValidationRules(compression_type=target))
    batch = RecordBatch(found.buffer)
    batch.check_crc()
    assert [record.offset for record in batch.records()] == [100, 101, 102]
    assert [record.value for record in batch.records()] == [b"v0", b"v5", b"v1"]
    assert (found.max_timestamp, batch.compression) == (1005, target)


def test_errors_name_every_record() -> None:
    """All records that violate a rule are reported, not only the first."""
    rows = [(1000, None, b"v", ()), (1000, b"k", b"v", ()), (1000, None, b"v", ())]
    error = refused(encode_batch(rows), ValidationRules(is_compacted=True, topic_partition="t-0"))
    assert isinstance(error, RecordValidationError)
    assert [index for index, _ in error.record_errors] == [0, 2]
    assert "2 record errors in total" in error.message
    late = refused(encode_batch([(NOW + 5000, b"k", b"", ())]), ValidationRules(after_max_ms=4999))
    assert late.code == ErrorCode.INVALID_TIMESTAMP


def test_old_formats_are_refused() -> None:
    """Formats 0 and 1 are refused since Kafka 4."""
    data = encode_batch(ROWS)
    data[16] = 1
    assert refused(data).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("kind", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
def test_a_negative_time_is_refused_where_a_batch_is_built_again(kind: TimestampType) -> None:
    """As in Kafka; its distance from the first record's may be beyond 64 bits."""
    data = encode_batch([(-5, b"k", b"v", ())])
    assert run(bytes(data)).record_count == 1
    rules = ValidationRules(compression_type=Compression.GZIP, timestamp_type=kind)
    assert refused(data, rules).code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert run(encode_batch([(-1, b"k", b"v", ())]), rules)
