"""The walk over fetched batches: as the slow iteration sees them, and no further than needed."""

from __future__ import annotations

import pytest

from ottla.errors import CorruptMessage
from ottla.records.batches import iterate_batches
from ottla.records.builder import encode_batch
from ottla.replication.share.acquiring import WINDOW_BYTES, walk


def batches(count: int, size: int = 10, each: int = 2) -> bytes:
    """Return consecutive batches."""
    found = []
    for number in range(count):
        records = [(0, None, bytes(size), ()) for _ in range(each)]
        found.append(bytes(encode_batch(records, base_offset=number * each)))
    return b"".join(found)


class Reads:
    """Bytes that count what is read of them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.count = 0

    def __call__(self, position: int, size: int) -> bytes:
        self.count += size
        return self.data[position : position + size]


@pytest.mark.parametrize("size", [10, 40_000, 100_000])
def test_all_batches_are_found_in_parts(size: int) -> None:
    """Also batches that are larger than what is read at once; a partial one at the end is left."""
    data = batches(5, size)
    for end in (len(data), len(data) - 1):
        found = walk(Reads(data[:end]), end, None, 1 << 60).batches
        expected = [
            (one.base_offset, one.next_offset - 1, one.position, one.size)
            for one in iterate_batches(memoryview(data[:end]), partial_tail=True)
        ]
        assert [one[:4] for one in found] == expected


def test_the_walk_ends_with_the_offset_that_is_needed() -> None:
    """Of many small batches only some are read."""
    data = batches(20_000)
    reads = Reads(data)
    found = walk(reads, len(data), None, 100).batches
    assert found[-1].last_offset == 101
    assert reads.count <= WINDOW_BYTES < len(data)


def test_what_is_no_batch_is_corrupt() -> None:
    """A size below that of any batch."""
    data = bytearray(batches(2))
    data[8:12] = (3).to_bytes(4, "big")
    with pytest.raises(CorruptMessage):
        walk(Reads(bytes(data)), len(data), None, 10)
