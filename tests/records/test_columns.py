"""Records to Arrow's buffers and back, as installed (compiled if possible) and uncompiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records import columns as columns_module
from ottla.records.batch import RecordBatch, TimestampType
from ottla.records.batches import iterate_batches
from ottla.records.builder import assemble_batch, encode_batch
from ottla.records.columns import (
    BinaryColumn,
    Columns,
    InputColumn,
    InputHeaders,
    encode_columns,
    parse_columns,
)
from ottla.records.compression import Compression
from ottla.records.control import encode_end_txn_marker
from tests.records.batch_changes import rebuild_batch
from tests.records.plain import COLUMN_SCANS, IDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROWS: list[Any] = [
    (1000, b"key", b"value", ()),
    (1003, None, b"", (("h", b"1"), ("ü", None))),
    (1001, b"", None, (("x", b""),)),
    (999, b"k" * 300, b"v" * 5000, ()),
]


@pytest.fixture(params=COLUMN_SCANS, ids=IDS, autouse=True)
def _both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with the installed scan and with the uncompiled one."""
    monkeypatch.setattr(columns_module, "column_scan", request.param)


def arrow(column: BinaryColumn | None, rows: int, kind: pa.DataType) -> pa.Array:
    """Wrap a column's buffers, not copied."""
    assert column is not None
    buffers = [pa.py_buffer(part) for part in column[:3]]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=column.null_count)


def to_rows(found: Columns) -> list[Any]:
    """Return (offset, timestamp, type, key, value, headers) as Arrow reads the buffers."""
    rows = found.rows
    fixed = [
        pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)]).to_pylist()
        for kind, data in (
            (pa.int64(), found.offsets),
            (pa.int64(), found.timestamps),
            (pa.int32(), found.timestamp_types),
        )
    ]
    assert found.headers is not None
    names = arrow(found.headers.names, found.headers.header_count, pa.string())
    contents = arrow(found.headers.contents, found.headers.header_count, pa.binary())
    pairs = pa.StructArray.from_arrays([names, contents], ["key", "value"])
    buffers = [pa.py_buffer(found.headers.validity), pa.py_buffer(found.headers.offsets)]
    lists = pa.Array.from_buffers(pa.list_(pairs.type), rows, buffers, children=[pairs])
    for array in (names, contents, pairs, lists):
        array.validate(full=True)
    return [
        (*row[:5], tuple((pair["key"], pair["value"]) for pair in row[5] or ()))
        for row in zip(
            *fixed,
            arrow(found.keys, rows, pa.binary()).to_pylist(),
            arrow(found.values, rows, pa.binary()).to_pylist(),
            lists.to_pylist(),
            strict=True,
        )
    ]


def read(data: bytes | bytearray, **settings: Any) -> list[Any]:
    """Return all rows of all chunks."""
    return [
        row for chunk in parse_columns(data, headers=True, **settings) for row in to_rows(chunk)
    ]


def expected(data: bytes | bytearray) -> list[Any]:
    """Return the same rows through Record tuples."""
    return [
        (record.offset, record.timestamp, int(batch.timestamp_type), *record[2:])
        for batch in iterate_batches(data)
        for record in batch.records()
    ]


@pytest.mark.parametrize("codec", list(Compression))
def test_columns_equal_records(codec: Compression) -> None:
    """Columns hold what Record tuples hold, nulls and headers too, over several batches."""
    data = encode_batch(ROWS, compression=codec, base_offset=10) + encode_batch(
        ROWS * 3,
        compression=codec,
        base_offset=14,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time=77,
    )
    assert read(data) == expected(data)
    assert read(data, chunk_bytes=1) == expected(data)
    assert read(data[:-1]) == expected(data)[:4]


def test_offset_range_cuts_within_batches() -> None:
    """Only start_offset <= offset < end_offset is returned; the next offset follows all read."""
    data = b"".join(encode_batch(ROWS, base_offset=base) for base in (0, 4, 8))
    for start in range(13):
        for end in range(start, 13):
            chunks = list(parse_columns(data, start_offset=start, end_offset=end, headers=True))
            rows = [row for chunk in chunks for row in to_rows(chunk)]
            assert [row[0] for row in rows] == list(range(start, end))
            if end > start:
                assert chunks[-1].next_offset == end


def test_columns_that_no_one_asked_for_are_missing() -> None:
    """Keys, values and headers are made on demand."""
    (found,) = parse_columns(encode_batch(ROWS), keys=False, headers=False)
    assert (found.rows, found.keys, found.headers) == (4, None, None)
    assert found.values is not None
    (found,) = parse_columns(encode_batch(ROWS), values=False)
    assert found.values is None


def test_control_and_aborted_batches_are_left_out() -> None:
    """Markers never come; a producer's records are dropped up to its abort marker only."""

    def written(producer_id: int, base_offset: int) -> bytearray:
        return encode_batch(
            ROWS[:2], base_offset=base_offset, producer_id=producer_id, producer_epoch=0,
            base_sequence=0, transactional=True,
        )  # fmt: skip

    def marker(producer_id: int, base_offset: int, *, commit: bool) -> bytearray:
        return encode_end_txn_marker(
            commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0,
            timestamp=1, base_offset=base_offset,
        )  # fmt: skip

    data = (
        written(1, 0)
        + written(2, 2)
        + marker(1, 4, commit=False)
        + written(1, 5)
        + marker(2, 7, commit=True)
        + marker(1, 8, commit=True)
        + encode_batch(ROWS[:1], base_offset=9)
    )
    kept = [row[0] for row in read(data, aborted=[(1, 0)])]
    assert kept == [2, 3, 5, 6, 9]
    assert [row[0] for row in read(data, aborted=[(1, 0)], chunk_bytes=1)] == kept
    assert [row[0] for row in read(data, aborted=[(1, 0)], start_offset=5)] == [5, 6, 9]
    assert [row[0] for row in read(data)] == [0, 1, 2, 3, 5, 6, 9]
    *_, last = parse_columns(data[: -len(encode_batch(ROWS[:1]))])
    assert last.next_offset == 9


def test_batches_that_compaction_thinned_or_emptied() -> None:
    """Sparse offsets come as they are; an empty batch only moves the position on."""
    batch = RecordBatch(encode_batch(ROWS, base_offset=20, compression=Compression.LZ4))
    kept = [record for record in batch.records() if record.offset in (21, 23)]
    empty = RecordBatch(encode_batch(ROWS, base_offset=24, compression=Compression.LZ4))
    data = rebuild_batch(batch, kept) + rebuild_batch(empty, [])
    (found,) = parse_columns(data, headers=True)
    assert [row[0] for row in to_rows(found)] == [21, 23]
    assert found.next_offset == 28


def test_a_range_that_ends_in_a_gap_of_a_compacted_log_ends() -> None:
    """A batch after the gap shows that the remaining range is empty."""
    before, after = (encode_batch(ROWS, base_offset=base) for base in (0, 60))
    (rest,) = parse_columns(after, start_offset=4, end_offset=50)
    assert (rest.rows, rest.next_offset) == (0, 50)
    for chunk_bytes in (1, 1 << 20):
        chunks = list(parse_columns(before + after, end_offset=50, chunk_bytes=chunk_bytes))
        assert sum(chunk.rows for chunk in chunks) == 4
        assert chunks[-1].next_offset == 50


def test_lies_are_corrupt() -> None:
    """Corrupt bytes, wrong counts, and records beyond the decompression limit raise."""
    data = encode_batch(ROWS)
    flipped = bytearray(data)
    flipped[70] ^= 1
    with pytest.raises(CorruptMessage):
        read(flipped)
    for count in (3, 5, -1, 1 << 30):
        lie = assemble_batch(
            RecordBatch(data).payload,
            attributes=0,
            record_count=count,
            last_offset_delta=3,
            base_timestamp=1000,
            max_timestamp=1003,
        )
        with pytest.raises(CorruptMessage):
            read(lie)
    bomb = encode_batch([(1, None, bytes(1 << 20), ())], compression=Compression.ZSTD)
    with pytest.raises(KafkaError) as error:
        read(bomb, limit_bytes=1 << 19)
    assert error.value.code == ErrorCode.INVALID_RECORD


def input_column(array: pa.Array) -> InputColumn:
    """Take an Arrow column apart."""
    validity, offsets, data = array.buffers()
    return InputColumn(
        memoryview(data if data is not None else b""),
        memoryview(offsets),
        None if validity is None else memoryview(validity),
        array.offset,
        pa.types.is_large_binary(array.type),
    )


def input_headers(array: pa.Array) -> InputHeaders:
    """Take an Arrow list of structs apart."""
    validity, offsets = array.buffers()[:2]
    pairs = array.values
    return InputHeaders(
        memoryview(offsets),
        input_column(pairs.field(0)),
        input_column(pairs.field(1)),
        None if validity is None else memoryview(validity),
        array.offset,
    )


def table(rows: Sequence[Any], *, wide: bool = False) -> tuple[pa.Array, ...]:
    """Return timestamps, keys, values and headers as Arrow arrays."""
    kind = pa.large_binary() if wide else pa.binary()
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [
        [{"key": name, "value": value} for name, value in row[3]] if row[3] else None
        for row in rows
    ]
    return (
        pa.array([row[0] for row in rows], pa.int64()),
        pa.array([row[1] for row in rows], kind),
        pa.array([row[2] for row in rows], kind),
        pa.array(headers, pa.list_(pair)),
    )


def encode(arrays: tuple[pa.Array, ...], **settings: Any) -> Iterator[bytearray]:
    """Encode Arrow arrays."""
    times, keys, values, headers = arrays
    start = times.offset * 8
    return encode_columns(
        len(times),
        timestamps=memoryview(times.buffers()[1])[start : start + 8 * len(times)],
        keys=input_column(keys),
        values=input_column(values),
        headers=input_headers(headers),
        **settings,
    )


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("wide", [False, True])
def test_encoded_columns_are_the_batches_of_the_builder(
    codec: Compression,
    wide: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    """One batch of all rows is byte for byte what encode_batch makes."""
    (data,) = encode(table(ROWS, wide=wide), compression=codec, producer_id=3, base_sequence=0)
    assert data == encode_batch(ROWS, compression=codec, producer_id=3, base_sequence=0)


def test_slices_start_where_they_say() -> None:
    """A slice of an array shares its buffers and begins at any bit."""
    rows = [(1000 + n, None if n % 3 else b"%d" % n, b"v%d" % n, ROWS[n % 4][3]) for n in range(40)]
    arrays = table(rows)
    for start in (0, 1, 7, 8, 9, 31):
        (data,) = encode(tuple(array.slice(start) for array in arrays))
        assert [tuple(record[1:]) for record in RecordBatch(data).records()] == rows[start:]


def test_batches_are_split_at_the_limit() -> None:
    """No batch passes the limit but for a single large row; sequences go on."""
    rows = [(1000, b"k", bytes(size), ()) for size in (100, 100, 100, 5000, 10, 300, 300)]
    found = list(encode(table(rows), limit_bytes=500, base_sequence=2**31 - 4, producer_id=1))
    batches = [RecordBatch(data) for data in found]
    assert [batch.record_count for batch in batches] == [3, 1, 2, 1]
    assert [batch.base_sequence for batch in batches] == [2**31 - 4, 2**31 - 1, 0, 2]
    for batch in batches:
        batch.check_crc()
    records = [record for batch in batches for record in batch.records()]
    assert [tuple(record[1:]) for record in records] == rows


def test_one_timestamp_for_all_and_no_keys() -> None:
    """Columns may be missing; a number stands for a whole column of times."""
    values = pa.array([b"a", b"b"])
    (data,) = encode_columns(2, timestamps=55, values=input_column(values))
    found = [tuple(record[1:]) for record in RecordBatch(data).records()]
    assert found == [(55, None, b"a", ()), (55, None, b"b", ())]
    assert list(encode_columns(0, timestamps=55)) == []


def test_broken_columns_are_refused() -> None:
    """Offsets outside the data, short columns, impossible times."""
    offsets = memoryview(b"\x00\x00\x00\x00\x09\x00\x00\x00")
    outside = InputColumn(b"abc", offsets)
    with pytest.raises(KafkaError) as error:
        list(encode_columns(1, timestamps=1, values=outside))
    assert error.value.code == ErrorCode.INVALID_RECORD
    with pytest.raises(KafkaError):
        list(encode_columns(1, timestamps=-2))
    for settings in (
        {"timestamps": 1, "values": outside},
        {"timestamps": bytes(8)},
        {"timestamps": 1, "keys": InputColumn(b"", bytes(12), validity=b"", first=0)},
        {"timestamps": 1, "headers": InputHeaders(bytes(8), outside, outside)},
    ):
        with pytest.raises(ValueError, match="fewer than"):
            list(encode_columns(2, **settings))
    lists = memoryview(b"\x00\x00\x00\x00\x05\x00\x00\x00")
    with pytest.raises(KafkaError):
        list(encode_columns(1, timestamps=1, headers=InputHeaders(lists, outside, outside)))
