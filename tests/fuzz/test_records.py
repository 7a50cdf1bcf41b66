"""Arbitrary records round-trip, arbitrary bytes are refused, compiled and uncompiled agree."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import CorruptMessage, KafkaError
from ottla.records.batch import RecordBatch
from ottla.records.batches import iterate_batches
from ottla.records.builder import assemble_batch, encode_batch
from ottla.records.columns import parse_columns
from ottla.records.compression import Compression, compress, decompress
from ottla.records.large_batches import DecompressionLimits, check_large_batch
from ottla.records.validation_rules import OffloadRequired, ValidationRules
from ottla.records.validator import place_checked, validate
from tests.records.plain import COLUMN_SCANS, SCANS

CODECS = st.sampled_from(list(Compression))
MAYBE_BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=10), MAYBE_BYTES), max_size=3).map(tuple)
TIMES = st.integers(-1, 1 << 50)
ROWS = st.lists(st.tuples(TIMES, MAYBE_BYTES, MAYBE_BYTES, HEADERS), min_size=1, max_size=20)
RULES = ValidationRules(after_max_ms=(1 << 63) - 1)
LIMIT = 1 << 20


def refuses_or_returns(call: Any, *arguments: Any, **named: Any) -> Any:
    """Return the result, or the error's name; anything but a KafkaError is a bug."""
    try:
        return call(*arguments, **named)
    except KafkaError as error:
        return error.code.name


def checked(data: bytes) -> object:
    """Validate; what is too much for the loop goes the way of large batches."""
    try:
        return validate(memoryview(data), 0, 0, 0, RULES)
    except OffloadRequired as large:
        limits = DecompressionLimits(max_bytes=1 << 22, max_cpu_ms=1000)
        found = check_large_batch(large, now_ms=0, limits=limits, cpu_s=lambda: 0.0)
        return place_checked(found, 0, 0, 0)


@given(ROWS, CODECS, st.integers(0, 1 << 40))
def test_records_survive_their_batch(rows: Any, codec: Compression, base_offset: int) -> None:
    """Build and parse are inverse, as tuples and as columns, and the validator agrees."""
    data = encode_batch(rows, compression=codec, base_offset=base_offset)
    batch = RecordBatch(data)
    batch.check_crc()
    assert [tuple(record[1:]) for record in batch.records()] == rows
    assert sum(chunk.rows for chunk in parse_columns(data)) == len(rows)
    data[:8] = bytes(8)
    found = validate(memoryview(data), 9, 1, 0, RULES)
    assert found.max_timestamp == max(row[0] for row in rows)
    assert found.record_count == len(rows)


@given(st.binary(max_size=400))
def test_arbitrary_bytes_raise_only_our_errors(data: bytes) -> None:
    """Batches, columns and the validator refuse noise with a Kafka error."""
    refuses_or_returns(lambda: [batch.records() for batch in iterate_batches(data)])
    refuses_or_returns(lambda: list(parse_columns(data)))
    refuses_or_returns(checked, data)


@given(st.binary(max_size=300), st.integers(-1, 5), CODECS, st.integers(0, 7))
def test_noise_in_a_sound_header(data: bytes, count: int, codec: Compression, flags: int) -> None:
    """Arbitrary bytes with a valid checksum are refused too."""
    batch = assemble_batch(
        data,
        attributes=int(codec) | flags << 3 & 0x58,
        record_count=count,
        last_offset_delta=max(count - 1, 0),
        base_timestamp=0,
        max_timestamp=0,
    )
    refuses_or_returns(RecordBatch(batch).records, LIMIT)
    refuses_or_returns(lambda: list(parse_columns(batch, headers=True, limit_bytes=LIMIT)))
    refuses_or_returns(checked, batch)


@given(CODECS, st.binary(max_size=300))
def test_noise_does_not_decompress_beyond_its_limit(codec: Compression, data: bytes) -> None:
    """Codecs raise Ottla's errors only and never exceed the limit."""
    found = refuses_or_returns(decompress, codec, data, 1000)
    assert isinstance(found, str) or codec == Compression.NONE or len(found) <= 1000


@given(CODECS, st.binary(max_size=3000))
def test_codecs_are_inverse(codec: Compression, data: bytes) -> None:
    """Decompression inverts compression with the exact size as limit."""
    assert bytes(decompress(codec, compress(codec, data), len(data))) == data


@given(ROWS, CODECS, st.data())
def test_any_changed_byte_is_detected_or_harmless(
    rows: Any, codec: Compression, draw: st.DataObject
) -> None:
    """The checksum covers all but what brokers set: offset, size, epoch, magic."""
    data = encode_batch(rows, compression=codec)
    position = draw.draw(st.integers(0, len(data) - 1))
    data[position] ^= draw.draw(st.integers(1, 255))
    try:
        batch = RecordBatch(data)
        batch.check_crc()
    except CorruptMessage:
        return
    assert position < 8 or 12 <= position < 16
    if abs(batch.base_offset) < 1 << 62:
        assert [tuple(record[1:]) for record in batch.records()] == rows


@given(st.binary(max_size=200), st.integers(-1, 20), st.integers(-(1 << 63), (1 << 63) - 1))
@settings(max_examples=300)
def test_compiled_and_plain_agree_on_noise(data: bytes, count: int, base: int) -> None:
    """Both give the same result or error for any bytes."""
    first, second = (
        (
            scan.scan_records(data, 0, len(data), count, base, 0, 1 << 50, True),
            refuses_or_returns(scan.decode_records, data, count, 7, base, None),
            scan.crc32c(data),
        )
        for scan in SCANS
    )
    assert first == second
    totals = [memoryview(bytearray(40)).cast("q") for _ in COLUMN_SCANS]
    measured = [
        bool(scan.measure_records(data, count, base, total))
        for scan, total in zip(COLUMN_SCANS, totals, strict=True)
    ]
    assert measured[0] == measured[1]
    if measured[0]:
        assert totals[0].tolist() == totals[1].tolist()


@given(ROWS)
def test_compiled_and_plain_agree_on_records(rows: Any) -> None:
    """Both encode the same bytes and read the same records."""
    encoded = []
    for scan in SCANS:
        out = bytearray()
        for index, (timestamp, key, value, headers) in enumerate(rows):
            scan.append_record(out, timestamp, index, key, value, scan.header_bytes(headers))
        encoded.append(out)
    assert encoded[0] == encoded[1]
    decoded = [scan.decode_records(encoded[0], len(rows), 0, 0, None) for scan in SCANS]
    assert decoded[0] == decoded[1]
    assert [tuple(record[1:]) for record in decoded[0]] == rows
