"""The scan of records, as installed (compiled if possible) and uncompiled."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import CorruptMessage
from ottla.records.batch import RecordBatch
from ottla.records.builder import encode_batch
from tests.records.plain import IDS, SCANS

BOTH = pytest.mark.parametrize("scan", SCANS, ids=IDS)
ROWS: list[Any] = [
    (1000, b"k", b"v" * 200, ()),
    (1005, None, b"", (("h", b"1"), ("ü", None))),
    (990, b"", None, ()),
]
MALFORMED, NOT_CONSECUTIVE, RULE_BROKEN = 1, 2, 4
EVER = (-(1 << 63), (1 << 63) - 1)


def payload() -> bytes:
    """Return three plain records."""
    return bytes(RecordBatch(encode_batch(ROWS)).payload)


@BOTH
def test_decodes_what_it_encoded(scan: Any) -> None:
    """Records come back with offsets and timestamps counted from the base."""
    out = bytearray()
    for index, (timestamp, key, value, headers) in enumerate(ROWS):
        scan.append_record(out, timestamp - 1000, index, key, value, scan.header_bytes(headers))
    assert out == payload()
    records = scan.decode_records(out, 3, 70, 1000, None)
    assert [record.offset for record in records] == [70, 71, 72]
    assert [tuple(record[1:]) for record in records] == ROWS
    stamped = scan.decode_records(memoryview(out), 3, 0, 1000, 5)
    assert {record.timestamp for record in stamped} == {5}


@BOTH
@pytest.mark.parametrize("value", [0, -1, 1, 63, 64, -65, 2**31 - 1, -(2**31), 2**62, -(2**63)])
def test_varints_are_zigzag(scan: Any, value: int) -> None:
    """A varint takes as many bytes as it was said to take, and timestamps of 64 bits survive."""
    out = bytearray()
    scan.append_varint(out, value)
    assert len(out) == scan.varint_bytes(value)
    record = bytearray()
    scan.append_record(record, value, 0, None, None, b"\x00")
    assert scan.decode_records(record, 1, 0, 0, None)[0].timestamp == value


@BOTH
def test_scan_finds_the_largest_timestamp(scan: Any) -> None:
    """The largest timestamp and its first record are found, within any part of a buffer."""
    data = b"xx" + payload() + b"yyy"
    assert scan.scan_records(data, 2, len(data) - 3, 3, 1000, *EVER, False) == (0, 1005, 1)
    empty = scan.scan_records(b"", 0, 0, 0, 1000, *EVER, False)
    assert empty == (0, -1, -1)


@BOTH
def test_scan_tells_broken_rules(scan: Any) -> None:
    """Invalid timestamps, missing keys and non-consecutive offsets have different results."""
    data = payload()
    end = len(data)
    assert scan.scan_records(data, 0, end, 3, 1000, 995, 2000, False)[0] == RULE_BROKEN
    assert scan.scan_records(data, 0, end, 3, 1000, 0, 1004, False)[0] == RULE_BROKEN
    assert scan.scan_records(data, 0, end, 3, 1000, *EVER, True)[0] == RULE_BROKEN
    no_time = bytearray()
    scan.append_record(no_time, -1, 1, b"k", b"v", b"\x00")
    found = scan.scan_records(no_time, 0, len(no_time), 1, 0, 10, 20, True)
    assert found == (NOT_CONSECUTIVE, -1, -1)


@BOTH
def test_every_cut_and_every_wrong_count_is_malformed(scan: Any) -> None:
    """No prefix of three records passes for three, nor do they pass for two or four."""
    data = payload()
    for end in range(len(data)):
        assert scan.scan_records(data, 0, end, 3, 1000, *EVER, False)[0] & MALFORMED
        with pytest.raises(CorruptMessage):
            scan.decode_records(data[:end], 3, 0, 1000, None)
    for count in (-1, 0, 2, 4, 1 << 31):
        assert scan.scan_records(data, 0, len(data), count, 1000, *EVER, False)[0] & MALFORMED
        with pytest.raises(CorruptMessage):
            scan.decode_records(data, count, 0, 1000, None)


@BOTH
@pytest.mark.parametrize(
    "record",
    [
        pytest.param(b"\x0f", id="negative size"),
        pytest.param(b"\x80\x80\x80\x80\x80\x01", id="size of six bytes"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x01", id="negative header count"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\xfe\x01", id="more headers than bytes"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", id="header without a name"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x01\x00\x00", id="larger than its fields"),
        pytest.param(b"\x0c\x00\x00\x00\x7e\x01\x00", id="key beyond the end"),
        pytest.param(b"\x1c\x00" + b"\x80" * 10 + b"\x00\x00\x00", id="varlong of eleven bytes"),
    ],
)
def test_malformed_records_are_refused(scan: Any, record: bytes) -> None:
    """Whatever a record claims, it stays within its bytes."""
    assert scan.scan_records(record, 0, len(record), 1, 0, *EVER, False)[0] & MALFORMED
    with pytest.raises(CorruptMessage):
        scan.decode_records(record, 1, 0, 0, None)


@BOTH
def test_timestamps_do_not_wrap(scan: Any) -> None:
    """A delta that would leave 64 bits is malformed."""
    record = bytearray()
    scan.append_record(record, 10, 0, b"k", b"v", b"\x00")
    largest = (1 << 63) - 1
    assert scan.scan_records(record, 0, len(record), 1, largest, *EVER, False)[0] & MALFORMED
    with pytest.raises(CorruptMessage):
        scan.decode_records(record, 1, 0, largest - 9, None)
    assert scan.decode_records(record, 1, 0, largest - 10, None)[0].timestamp == largest


@BOTH
def test_bases_far_out_are_refused(scan: Any) -> None:
    """A base offset that could wrap with its deltas is corrupt."""
    with pytest.raises(CorruptMessage):
        scan.decode_records(payload(), 3, (1 << 63) - 1, 1000, None)


@BOTH
def test_the_cursor_refuses_ranges_outside_its_bytes(scan: Any) -> None:
    """A range that is not in the buffer is the caller's mistake."""
    with pytest.raises(ValueError, match="no bytes"):
        scan.scan_records(b"abc", 0, 4, 0, 0, *EVER, False)
    with pytest.raises(ValueError, match="no bytes"):
        scan.scan_records(b"abc", -1, 2, 0, 0, *EVER, False)


@BOTH
def test_append_stops_at_a_limit(scan: Any) -> None:
    """A record that would exceed the limit leaves the buffer unchanged."""
    out = bytearray()
    assert scan.append_record(out, 0, 0, b"k", b"v", b"\x00", 9)
    assert len(out) == 9
    assert not scan.append_record(out, 0, 1, b"k", b"v", b"\x00", 17)
    assert len(out) == 9
