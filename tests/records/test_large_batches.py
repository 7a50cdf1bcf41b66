"""Large batches are validated like small ones, in slices and within limits."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode, InvalidRecordError, KafkaError, UnknownServerError
from ottla.records import codec_streams, large_batches, record_stream, validator
from ottla.records.batch import HEADER_BYTES, TRANSACTIONAL_FLAG, RecordBatch, TimestampType
from ottla.records.builder import assemble_batch, encode_batch
from ottla.records.compression import Compression, DecompressionLimitExceeded, compress
from ottla.records.large_batches import DecompressionLimits, check_large_batch
from ottla.records.scan import append_record
from ottla.records.validation_rules import (
    CheckedBatch,
    OffloadRequired,
    RecordValidationError,
    ValidationRules,
)
from ottla.records.validator import place_checked, validate
from tests.records.plain import IDS, SCANS

BOTH = pytest.mark.parametrize("scan", SCANS, ids=IDS)
NOW = 10_000
RULES = ValidationRules(topic_partition="t-0", max_message_bytes=1 << 24)
LIMITS = DecompressionLimits(max_bytes=1 << 22, max_cpu_ms=1000)
ROWS: list[Any] = [
    (1000 + index, b"k%d" % index, b"v" * index, (("h", b"1"), ("i", None)) * (index % 3))
    for index in range(40)
]
GAPS = [0, 2, *range(2, 40)]


@pytest.fixture(
    autouse=True,
    params=[(1 << 18, 1 << 18), (64, 1 << 18), (64, 40)],
    ids=["one chunk", "records across chunks", "large records"],
)
def _small_chunks(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Make many chunks and runs of few records."""
    chunk_bytes, joined_bytes = request.param
    monkeypatch.setattr(codec_streams, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(record_stream, "_JOINED_BYTES", joined_bytes)
    monkeypatch.setattr(record_stream, "_RUN_RECORDS", 3)
    monkeypatch.setattr(record_stream, "_RUN_BYTES", 100)


def batch_of(
    payload: bytes | bytearray,
    *,
    codec: Compression = Compression.GZIP,
    count: int = len(ROWS),
    **more: int,
) -> bytearray:
    """Return a batch with good checksum and header around any payload."""
    fields: dict[str, Any] = {"attributes": int(codec), "base_timestamp": 1000, **more}
    return assemble_batch(
        compress(codec, payload),
        record_count=count,
        last_offset_delta=count - 1,
        max_timestamp=1039,
        **fields,
    )


def payload(offsets: list[int] | range = range(40), rows: list[Any] = ROWS) -> bytearray:
    """Return plain records with these offset deltas."""
    out = bytearray()
    for delta, (timestamp, key, value, headers) in zip(offsets, rows, strict=True):
        encoded = SCANS[0].header_bytes(headers)
        append_record(out, timestamp - 1000, delta, key, value, encoded)
    return out


def by_worker(data: bytearray, rules: ValidationRules = RULES, **changes: Any) -> CheckedBatch:
    """Check as a worker does."""
    settings = {"now_ms": NOW, "limits": LIMITS, "cpu_s": lambda: 0.0, **changes}
    return check_large_batch(OffloadRequired(memoryview(data), rules), **settings)


def both(data: bytearray, rules: ValidationRules = RULES) -> tuple[Any, Any]:
    """Return what becomes of a batch on the loop, and by way of a worker."""
    outcomes: list[Any] = []

    def at_once() -> Any:
        return validate(
            memoryview(bytearray(data)), next_offset=100, leader_epoch=7, now_ms=NOW, rules=rules
        )

    def later() -> Any:
        return place_checked(by_worker(bytearray(data), rules), 100, 7, NOW)

    for way in (at_once, later):
        try:
            found = way()
            batch = RecordBatch(found.buffer)
            batch.check_crc()
            plain = (batch.records(), batch.compression, batch.timestamp_type, batch.producer_id)
            outcomes.append((found[12:], found[:10], plain))
        except KafkaError as error:
            outcomes.append((type(error), error.code, getattr(error, "record_errors", None)))
    return outcomes[0], outcomes[1]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("target", [None, Compression.NONE, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("kind", list(TimestampType)[-2:])
@pytest.mark.parametrize("offsets", [range(40), GAPS], ids=["in order", "with gaps"])
def test_both_ways_give_equal_batches(
    codec: Compression, target: Compression | None, kind: TimestampType, offsets: Any
) -> None:
    """Whatever codec, target, clock and offsets: records, place and flags are the same."""
    rules = ValidationRules(compression_type=target, timestamp_type=kind)
    data = batch_of(payload(offsets), codec=codec, producer_id=5, producer_epoch=0, base_sequence=3)
    one, other = both(data, rules)
    assert one == other
    if offsets == GAPS and codec and target in (None, codec):
        assert one == (InvalidRecordError, ErrorCode.INVALID_RECORD, None)
    else:
        assert len(one[2][0]) == 40


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(payload()[:-1], id="cut"),
        pytest.param(payload() + b"x", id="more behind"),
        pytest.param(b"\xff" * 300, id="varints without end"),
        pytest.param(b"", id="nothing"),
        pytest.param(payload() + payload(), id="twice as many"),
        pytest.param(b"\x12" + payload()[1:], id="a wrong length"),
    ],
)
def test_both_ways_refuse_what_is_malformed(data: bytes) -> None:
    """INVALID_RECORD, without a record named."""
    one, other = both(batch_of(bytes(data)))
    assert one[1] is other[1] is ErrorCode.INVALID_RECORD


def test_both_ways_name_the_same_records() -> None:
    """Timestamps out of range and missing keys, with the same words."""
    rows = [
        (row[0], None if index % 7 == 2 else row[1], *row[2:]) for index, row in enumerate(ROWS)
    ]
    late = ValidationRules(after_max_ms=-8970, before_max_ms=8995, topic_partition="t-0")
    compacted = ValidationRules(is_compacted=True, topic_partition="t-0")
    for rules in (late, compacted):
        one, other = both(batch_of(payload(rows=rows)), rules)
        assert one == other
        assert one[0] is RecordValidationError
        assert one[2]


def test_a_claimed_broker_time_is_validated_equally() -> None:
    """A client's flag for the broker's time is dropped or refused on both ways."""
    for kind in TimestampType:
        flagged = batch_of(payload(), attributes=int(Compression.GZIP) | 8)
        one, other = both(flagged, ValidationRules(timestamp_type=kind, topic_partition="t-0"))
        assert one == other


def test_both_ways_refuse_a_producer_without_epoch_or_sequence() -> None:
    """Refused if the batch is rebuilt, as by Kafka's builder, which accepts ids below -1."""
    rules = ValidationRules(compression_type=Compression.LZ4)
    for producer_id, epoch, sequence in ((-2, -1, 0), (-2, 0, -1), (5, -1, 0)):
        fields: dict[str, Any] = {
            "producer_epoch": epoch,
            "base_sequence": sequence,
            "producer_id": producer_id,
        }
        refused = (UnknownServerError, ErrorCode.UNKNOWN_SERVER_ERROR, None)
        assert both(batch_of(payload(), **fields), rules) == (refused, refused)
    at_once, later = both(
        batch_of(payload(), producer_id=-2, producer_epoch=0, base_sequence=0), rules
    )
    assert at_once == later
    assert at_once[2][3] == -2


def test_both_ways_refuse_a_transaction_without_a_producer() -> None:
    """Refused if the batch is rebuilt, as by Kafka's builder."""
    transactional = batch_of(payload(), attributes=int(Compression.GZIP) | TRANSACTIONAL_FLAG)
    refused = (UnknownServerError, ErrorCode.UNKNOWN_SERVER_ERROR, None)
    rules = ValidationRules(compression_type=Compression.LZ4)
    assert both(transactional, rules) == (refused, refused)
    at_once, later = both(transactional)
    assert at_once == later
    assert at_once[0] is not UnknownServerError


@pytest.mark.parametrize("kind", list(TimestampType)[-2:])
def test_both_ways_refuse_times_beyond_64_bits(kind: TimestampType) -> None:
    """With the number that Kafka's would wrap around to, whatever the topic's clock."""
    last = (1 << 63) - 1
    plain = bytearray()
    for index, delta in enumerate((0, 3)):
        append_record(plain, delta, index, None, b"v", b"\0")
    data = batch_of(plain, count=2, base_timestamp=last)
    at_once, later = both(data, ValidationRules(timestamp_type=kind, after_max_ms=last))
    assert at_once == later
    assert at_once[1] == ErrorCode.INVALID_TIMESTAMP
    assert [(index, text.split()[1]) for index, text in at_once[2]] == [(1, str(2 - last - 1))]


def test_few_records_are_named_of_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer stays small, and counts them all."""
    monkeypatch.setattr(large_batches, "MAX_NAMED_RECORDS", 5)
    rows = [(row[0], None, *row[2:]) for row in ROWS]
    with pytest.raises(RecordValidationError) as error:
        by_worker(batch_of(payload(rows=rows)), ValidationRules(is_compacted=True))
    assert len(error.value.record_errors) == 5
    assert "40 record errors in total" in str(error.value)


def test_limits_of_bytes_and_time() -> None:
    """Both end in DecompressionLimitExceeded, for every codec; scans check the time as well."""
    for codec in Compression:
        data = batch_of(payload(), codec=codec)
        if codec:
            with pytest.raises(DecompressionLimitExceeded):
                by_worker(data, limits=DecompressionLimits(len(payload()) - 1, 1000))
        by_worker(data, limits=DecompressionLimits(len(payload()), 1000))
        ticks = iter(range(10_000))
        limits = DecompressionLimits(1 << 22, 4)
        with pytest.raises(DecompressionLimitExceeded):
            by_worker(data, limits=limits, cpu_s=lambda: next(ticks) / 1000)  # noqa: B023 - used at once


def test_the_time_of_compressing_counts() -> None:
    """A topic's slow codec cannot hold a worker: the limit is looked at between slices."""
    asked: list[float] = []

    def cpu_s() -> float:
        asked.append(0.0)
        return 0.0

    rules = ValidationRules(compression_type=Compression.ZSTD, compression_level=19)
    by_worker(batch_of(payload()), rules, cpu_s=cpu_s)
    before_compressing = len(asked) - 1
    ticks = iter([0.0] * before_compressing + [9.0] * 9)
    with pytest.raises(DecompressionLimitExceeded):
        by_worker(batch_of(payload()), rules, cpu_s=lambda: next(ticks))


def test_a_rebuilt_batch_keeps_to_max_message_bytes() -> None:
    """A codec that makes it grow too much is MESSAGE_TOO_LARGE."""
    data = batch_of(payload())
    rules = ValidationRules(compression_type=Compression.NONE, max_message_bytes=len(data) + 1)
    with pytest.raises(KafkaError) as error:
        by_worker(data, rules)
    assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_record_of_very_many_headers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk over one record's headers cannot stop in between, so they are bounded."""
    out = bytearray()
    append_record(out, 0, 0, b"k", None, SCANS[0].header_bytes((("", None),) * 1_000_001))
    monkeypatch.setattr(record_stream, "_RUN_BYTES", 1 << 20)
    with pytest.raises(KafkaError) as error:
        by_worker(batch_of(out, count=1))
    assert error.value.code is ErrorCode.INVALID_RECORD
    assert "1000000 headers" in str(error.value)


@pytest.mark.parametrize("codec", list(Compression))
def test_the_loop_sends_large_batches_away(codec: Compression) -> None:
    """One byte more than the loop has time for; up to there it is checked at once."""
    room = validator.LOOP_BYTES - HEADER_BYTES - 40
    fits = encode_batch([(1000, b"k", bytes(room), ())], compression=codec)
    found = validate(memoryview(fits), 0, 0, NOW, RULES)
    assert found.record_count == 1
    larger = encode_batch([(1000, b"k", bytes(room + 200), ())], compression=codec)
    with pytest.raises(OffloadRequired) as error:
        validate(memoryview(larger), 0, 0, NOW, RULES)
    assert bytes(error.value.view) == bytes(larger)


def test_many_records_to_look_at_are_sent_away() -> None:
    """Only few records are validated or numbered one by one on the loop."""
    rows = [(1000, None, b"", ())] * 3000
    data = encode_batch(rows)
    for rules in (ValidationRules(is_compacted=True), ValidationRules(compression_type=1)):  # type: ignore[arg-type] # a codec is a number
        with pytest.raises(OffloadRequired):
            validate(memoryview(bytes(data)), 0, 0, NOW, rules)
    assert by_worker(data, ValidationRules(compression_type=Compression.GZIP)).view[22] & 7 == 1


def test_streams_of_very_many_pieces_are_sent_away() -> None:
    """Members and blocks cost time each, so that few bytes may be too much."""
    member = bytes(compress(Compression.GZIP, b""))
    frame = bytes(compress(Compression.SNAPPY, b"a"))
    for codec, data in (
        (Compression.GZIP, member * 2000),
        (Compression.SNAPPY, frame[:16] + frame[16:] * 2000),
    ):
        batch = assemble_batch(
            data,
            attributes=int(codec),
            record_count=1,
            last_offset_delta=0,
            base_timestamp=0,
            max_timestamp=0,
        )
        with pytest.raises(OffloadRequired):
            validate(memoryview(batch), 0, 0, NOW, RULES)


@BOTH
def test_slices_cover_all_records(scan: Any) -> None:
    """Slices hold at least one record, at most as many and as many bytes as asked for."""
    data = bytes(payload())
    position, total = 0, 0
    while total < 40:
        count, end = scan.slice_end(data, position, min(6, 40 - total), 150)
        assert 1 <= count <= 6
        assert count == 1 or end - position <= 150
        outlines = scan.outline_records(data, position, end, total, count)
        assert [one[0] for one in outlines] == list(range(total, total + count))
        assert [one[1] for one in outlines] == list(range(total, total + count))
        sizes = [(len(row[1]), len(row[2])) for row in ROWS[total : total + count]]
        assert [one[2:] for one in outlines] == sizes
        position, total = end, total + count
    assert position == len(data)
    assert scan.slice_end(data[:5], 0, 1, 100) == (0, 0)


@BOTH
def test_records_are_numbered_again(scan: Any) -> None:
    """Only offset deltas and lengths change, whatever their width."""
    data = bytes(payload(range(100, 5000, 125)[:40]))
    out = bytearray()
    assert scan.append_renumbered(out, data, 0, 0, 40) == len(data)
    assert out == payload()
    with pytest.raises(KafkaError):
        scan.append_renumbered(out, data[:10], 0, 0, 2)
