"""Records are found in chunks however these cut them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import CorruptMessage
from ottla.records import record_stream
from ottla.records.record_stream import RecordRun, RecordStream
from ottla.records.scan import (
    append_record,
    append_renumbered,
    append_varint,
    header_bytes,
    outline_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADERS: list[Any] = [(), (("h", b"1"),), (("name", None), ("", b""), ("x" * 200, b"y" * 300))]
OFFSETS = (0, 1, 5, 3, 1 << 20, -7, 6, 7)


def payload(offsets: Any = OFFSETS) -> bytes:
    """Return records of many sizes."""
    out = bytearray()
    for index, offset in enumerate(offsets):
        key = None if index % 3 == 1 else b"k" * (index * 40)
        value = None if index % 4 == 2 else b"v" * (index * 90)
        append_record(out, index << 33, offset, key, value, header_bytes(HEADERS[index % 3]))
    return bytes(out)


def cut(data: bytes, sizes: Iterator[int]) -> Iterator[memoryview]:
    """Return data in chunks, in a buffer that each one overwrites."""
    position = 0
    while position < len(data):
        size = next(sizes)
        buffer = bytearray(data[position : position + size])
        yield memoryview(buffer)
        buffer[:] = bytes(len(buffer))
        position += size


def outlines(
    chunks: Iterator[memoryview], count: int, written: bytearray | None = None
) -> list[tuple[int, int, int, int, int]]:
    """Return index, offset, time, size of key and size of value of all records."""
    found: list[tuple[int, int, int, int, int]] = []
    write = None if written is None else written.extend
    for one in RecordStream(chunks, count, lambda _pieces: None, write):
        if not isinstance(one, RecordRun):
            found.append(tuple(one))  # type: ignore[arg-type] # mypy loses its length
            continue
        first, size, view, start, end = one
        inner = outline_records(view, start, end, first, size)
        found += [(first + index, *outline) for index, outline in enumerate(inner)]
        if written is not None:
            append_renumbered(written, view, start, first, size)
    return found


def normal(found: list[Any]) -> list[Any]:
    """Return outlines with any negative size as -1."""
    return [(*one[:-2], max(one[-2], -1), max(one[-1], -1)) for one in found]


@pytest.mark.parametrize("joined_bytes", [1 << 18, 300, 8, 0])
@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 7, 64, 500, 1 << 20, None])
def test_chunks_do_not_matter(
    monkeypatch: pytest.MonkeyPatch, joined_bytes: int, chunk_bytes: int | None
) -> None:
    """Outlines and rewritten records are those of the whole, also of records that are walked."""
    monkeypatch.setattr(record_stream, "_JOINED_BYTES", joined_bytes)
    data = payload()
    rng = random.Random(chunk_bytes or 5)
    sizes = iter(lambda: chunk_bytes or rng.choice([0, 1, 2, 5, 90]), -1)
    written = bytearray()
    whole = outline_records(data, 0, len(data), 0, len(OFFSETS))
    expected = [(index, *one) for index, one in enumerate(whole)]
    found = outlines(cut(data, sizes), len(OFFSETS), written)
    assert normal(found) == normal(expected)
    renumbered = bytearray()
    append_renumbered(renumbered, data, 0, 0, len(OFFSETS))
    assert written == renumbered


@pytest.mark.parametrize("joined_bytes", [1 << 18, 8])
def test_what_is_cut_short_is_corrupt(monkeypatch: pytest.MonkeyPatch, joined_bytes: int) -> None:
    """At every byte, and with bytes or records after the last one."""
    monkeypatch.setattr(record_stream, "_JOINED_BYTES", joined_bytes)
    data = payload(OFFSETS[:4])
    for size in range(len(data)):
        with pytest.raises(CorruptMessage):
            outlines(cut(data[:size], iter(lambda: 50, -1)), 4)
    for more in (b"\0", payload(OFFSETS[:1])):
        with pytest.raises(CorruptMessage, match="still remaining"):
            outlines(cut(data + more, iter(lambda: 50, -1)), 4)
    assert outlines(iter([memoryview(b""), memoryview(b"")]), 0) == []


def varint(value: int) -> bytes:
    """Return a zig-zag varint."""
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(b"\0\0\0" + varint(900) + bytes(20), "longer than its bytes", id="key"),
        pytest.param(b"\0\0\0\1" + varint(900) + bytes(20), "longer than its bytes", id="value"),
        pytest.param(b"\0\0\0\1\1\1" + bytes(20), "longer than its bytes", id="no headers"),
        pytest.param(
            b"\0\0\0\1\1" + varint(1_000_001) + bytes(20), "1000000 headers", id="too many"
        ),
        pytest.param(b"\0\0\0\1\1\2\1" + bytes(20), "longer than its bytes", id="header name"),
        pytest.param(b"\0\0\0\1\1\x04\2h\0" + b"", "longer than its bytes", id="header is missing"),
        pytest.param(b"\0\0\0\1\1\0" + bytes(20), "longer than its fields", id="more than fields"),
        pytest.param(b"\0\0" + b"\x80" * 5 + b"\1" + bytes(20), "too long", id="varint"),
        pytest.param(b"\0" + b"\x80" * 10 + b"\1" + bytes(20), "too long", id="varlong"),
    ],
)
def test_a_large_record_is_checked(monkeypatch: pytest.MonkeyPatch, body: bytes, text: str) -> None:
    """Field by field, as a small one."""
    monkeypatch.setattr(record_stream, "_JOINED_BYTES", 0)
    data = varint(len(body)) + body
    with pytest.raises(CorruptMessage, match=text):
        outlines(cut(data, iter(lambda: 1, -1)), 1)
    with pytest.raises(CorruptMessage):
        outline_records(data, 0, len(data), 0, 1)


def test_the_walk_over_headers_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record may have a million of them."""
    monkeypatch.setattr(record_stream, "_JOINED_BYTES", 0)
    body = b"\0\0\0\1\1" + varint(5000) + b"\0\1" * 5000
    calls: list[int] = []
    data = varint(len(body)) + body
    chunks = cut(data, iter(lambda: 100, -1))
    assert len(list(RecordStream(chunks, 1, calls.append))) == 1
    assert len(calls) > 15


@pytest.mark.parametrize("joined_bytes", [1 << 18, 0])
def test_any_bytes_are_checked_as_in_one_piece(
    monkeypatch: pytest.MonkeyPatch, joined_bytes: int
) -> None:
    """Broken records are refused whether they come at once or in chunks."""
    monkeypatch.setattr(record_stream, "_JOINED_BYTES", joined_bytes)
    rng = random.Random(11)
    good = payload(OFFSETS[:4])
    accepted = 0
    for _ in range(1200):
        data = bytearray(good)
        for _ in range(rng.choice([1, 1, 2])):
            data[rng.choice([rng.randrange(12), rng.randrange(len(data))])] = rng.randrange(256)
        try:
            expected = normal(
                [
                    (i, *one)
                    for i, one in enumerate(outline_records(bytes(data), 0, len(data), 0, 4))
                ]
            )
        except CorruptMessage:
            expected = []
        size = rng.choice([1, 13, 100, 10_000])
        try:
            found = normal(outlines(cut(bytes(data), iter(lambda: size, -1)), 4))  # noqa: B023 - used at once
        except CorruptMessage:
            found = []
        assert found == expected, bytes(data).hex()
        accepted += bool(found)
    assert accepted > 100
