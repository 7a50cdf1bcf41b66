"""Long indexes, of which memory holds only the end and a page."""

from __future__ import annotations

from random import Random

import pytest

from ottla.storage.indexes.entry_index import PAGE_ENTRIES, TAIL_ENTRIES
from ottla.storage.indexes.offset_index import OffsetIndex
from ottla.storage.indexes.time_index import TimeIndex
from ottla.testing.disk import SimulatedDisk

BASE, STEP = 1000, 7
LENGTHS = (0, 1, TAIL_ENTRIES, TAIL_ENTRIES + 1, 3 * PAGE_ENTRIES + 5)


def offset_index(disk: SimulatedDisk, count: int) -> OffsetIndex:
    """Return an index with an entry for every seventh offset, a hundred bytes apart."""
    index = OffsetIndex(disk, "0.index", base_offset=BASE, max_bytes=1 << 20)
    index.create(preallocate=True)
    for number in range(count):
        index.append(BASE + STEP * number, 100 * number)
    return index


def expected(count: int, offset: int) -> tuple[int, int]:
    """Return the entry for an offset by arithmetic."""
    number = min((offset - BASE) // STEP, count - 1)
    return (BASE, 0) if number < 0 else (BASE + STEP * number, 100 * number)


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("reopens", [False, True])
def test_every_offset_is_looked_up(count: int, *, reopens: bool) -> None:
    """In order, backwards and at random; in a file of this run or of an earlier one."""
    disk = SimulatedDisk()
    index = offset_index(disk, count)
    if reopens:
        index.trim()
        index = OffsetIndex(disk, "0.index", base_offset=BASE, max_bytes=1 << 20)
    offsets = list(range(BASE - 1, BASE + STEP * count + 3))
    rng = Random(count)
    for some in (offsets, offsets[::-1], rng.sample(offsets, min(500, len(offsets)))):
        for offset in some:
            assert index.lookup(offset) == expected(count, offset)


def test_an_index_that_is_cut_forgets_its_page() -> None:
    """What was read before a truncation is not what the file has after it."""
    count = 3 * PAGE_ENTRIES
    index = offset_index(SimulatedDisk(), count)
    assert index.lookup(BASE + STEP * 20) == expected(count, BASE + STEP * 20)
    index.truncate_to(BASE + STEP * 10)
    for number in range(10, count):
        index.append(BASE + STEP * number, 100 * number + 1)
    assert index.lookup(BASE + STEP * 20) == (BASE + STEP * 20, 2001)
    assert index.lookup(BASE + STEP * 9) == (BASE + STEP * 9, 900)


def test_memory_holds_the_end_and_a_page() -> None:
    """However long the index is, and wherever it was read."""
    index = offset_index(SimulatedDisk(), 20 * TAIL_ENTRIES)
    index.lookup(BASE)
    assert len(index._tail) <= TAIL_ENTRIES * index.entry.size
    assert [len(column) for column in index._page] == [PAGE_ENTRIES] * 2
    index.trim()
    index.release()
    assert not index._tail
    assert not index._page[0]


def test_times_are_looked_up_too() -> None:
    """The last entry that is not newer."""
    index = TimeIndex(SimulatedDisk(), "0.timeindex", base_offset=BASE, max_bytes=1 << 20)
    index.create(preallocate=True)
    for number in range(3 * PAGE_ENTRIES):
        index.append_if_newer(10 * number, BASE + number)
    assert index.lookup(-1).timestamp == -1
    for number in range(3 * PAGE_ENTRIES):
        assert index.lookup(10 * number + 9) == (10 * number, BASE + number)
    index.truncate_to(BASE + PAGE_ENTRIES)
    assert index.last() == (10 * (PAGE_ENTRIES - 1), BASE + PAGE_ENTRIES - 1)


def test_a_place_before_the_first_entry_is_read_from_the_file_once() -> None:
    """Consumers that begin at the start of a long segment look there for each fetch."""
    index = offset_index(SimulatedDisk(), 3 * PAGE_ENTRIES)
    assert index.lookup(BASE - 1) == (BASE, 0)
    index.directory = SimulatedDisk()  # without the file
    assert index.lookup(BASE - 1) == (BASE, 0)
    assert index.lookup(BASE + STEP) == (BASE + STEP, 100)
