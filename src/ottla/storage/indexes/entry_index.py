"""The base of offset and time index: a file of fixed-size entries in increasing order.

New entries are buffered and written in groups; a crash may lose them, because recovery rebuilds the
indexes of every segment that was not flushed. The file of an active
segment is a preallocated sparse file, as Kafka's, and trimmed when the segment is closed or rolled.
Only the end of a long index is kept in memory; older entries are searched in the file on demand and
one page of them is cached until `release`. No descriptor is kept open: a group is written
about once per 64 KiB of log.

Kafka: org.apache.kafka.storage.internals.log.AbstractIndex, LazyIndex.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

from ottla.errors import CorruptMessage

if TYPE_CHECKING:
    from collections.abc import Callable
    from struct import Struct

    from ottla.storage.directory import Directory, File

WRITE_GROUP_ENTRIES = 16
TAIL_ENTRIES = 32
"""Kept in memory, plus at most one group: about 10 MB for ten thousand busy partitions."""
PAGE_ENTRIES = 512
"""Entries read at once when old offsets are looked up in sequence; cached as two arrays."""
_NO_PAGE: tuple[array[int], array[int]] = (array("q"), array("q"))


class EntryIndex:
    """An index file; it is opened for each use."""

    entry: ClassVar[Struct]

    __slots__ = (
        "_count",
        "_dirty",
        "_page",
        "_page_first",
        "_preallocated",
        "_tail",
        "_tail_first",
        "_written",
        "base_offset",
        "directory",
        "max_entries",
        "path",
    )

    def __init__(
        self, directory: Directory, path: str, *, base_offset: int, max_bytes: int
    ) -> None:
        self.directory = directory
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.entry.size
        self._count = -1  # unknown until the file was checked
        self._tail = bytearray()
        self._tail_first = 0  # number of the first entry that `_tail` holds
        self._page = _NO_PAGE  # the cached entries
        self._page_first = 0
        self._written = 0  # entries in the file
        self._preallocated = False
        self._dirty = False  # entries or length changed since the last `pin_for_sync`

    @property
    def count(self) -> int:
        """Number of entries."""
        if self._count < 0:
            self._attach()
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether the segment must be rolled before more is appended."""
        return self._count >= self.max_entries

    @property
    def is_loaded(self) -> bool:
        """Whether the number of entries is known."""
        return self._count >= 0

    def _attach(self) -> None:
        """Read the number of entries of a file that an earlier run closed."""
        size = self.directory.size(self.path)
        if size % self.entry.size:
            raise CorruptMessage(f"{self.path} has {size} bytes, not a multiple of its entries")
        self._count = self._written = self._tail_first = size // self.entry.size
        if self._count:
            self._check_last()

    def _check_last(self) -> None:
        """Reject a file that was never trimmed: its last entries are zeros."""
        if self._count > 1 and not any(self._fields(self._count - 1)):
            self._count = -1
            raise CorruptMessage(f"{self.path} ends in empty entries")

    def create(self, *, preallocate: bool) -> None:
        """Create an empty index, preallocated for an active segment or not."""
        size = self.max_entries * self.entry.size if preallocate else 0
        self.directory.make_file(self.path, size)
        self._preallocated = preallocate
        self._count = self._written = self._tail_first = 0
        self._tail.clear()
        self._page = _NO_PAGE

    def preallocate(self) -> None:
        """Preallocate the file of a segment that became active again."""
        if not self._preallocated:
            count = self.count
            self._truncate_file(max(self.max_entries, count))
            self._preallocated = True

    def _opened(self) -> closing[File]:
        return closing(self.directory.open(self.path, create=True))

    def _truncate_file(self, entries: int) -> None:
        with self._opened() as file:
            file.truncate(entries * self.entry.size)

    def _append(self, entry: bytes) -> int:
        """Add an entry and return the count; the caller has checked order and capacity."""
        if self._count < 0:
            self._attach()
        self._tail += entry
        count = self._count = self._count + 1
        if count - self._written >= WRITE_GROUP_ENTRIES:
            self.write_pending()
        return count

    def write_pending(self) -> None:
        """Write the buffered entries to the file; OSError leaves them buffered."""
        if self._count > self._written:
            size = self.entry.size
            start = (self._written - self._tail_first) * size
            self.directory.write_at(self.path, self._written * size, self._tail[start:])
            self._written = self._count
            self._dirty = True
        if self._count - self._tail_first > TAIL_ENTRIES:
            drop = TAIL_ENTRIES // 2
            del self._tail[: drop * self.entry.size]
            self._tail_first += drop

    def trim(self) -> None:
        """Write buffered entries and cut the file after the last one."""
        if self._count < 0:
            return
        if self._count == self._written and not self._preallocated:
            return
        self.write_pending()
        self._truncate_file(self._count)
        self._preallocated = False
        self._dirty = True

    def pin_for_sync(self) -> File | None:
        """Return the file with all entries written, or None when it is unchanged.

        The file is pinned and closed, so that its last `unpin` closes the descriptor.
        """
        if self._count >= 0:
            self.write_pending()
        if not self._dirty:
            return None
        with self._opened() as file:
            file.pin()
        self._dirty = False
        return file

    def sync_again(self) -> None:
        """Mark the file dirty again: its last sync may not have happened."""
        self._dirty = True

    def release(self) -> None:
        """Drop what is cached in memory; for inactive segments."""
        if self._count >= 0 and self._count == self._written and not self._preallocated:
            self._count = -1
            self._tail.clear()
            self._page = _NO_PAGE

    def _truncate_entries(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count >= self.count:
            return
        self._page = _NO_PAGE
        if count < self._tail_first:
            self._tail.clear()
            self._tail_first = count
        else:
            del self._tail[(count - self._tail_first) * self.entry.size :]
        if count < self._written:
            with self._opened() as file:
                file.truncate(count * self.entry.size)
                if self._preallocated:
                    file.truncate(self.max_entries * self.entry.size)
            self._dirty = True
            self._written = count
        self._count = count

    def _fields(self, number: int) -> tuple[int, int]:
        """Return an entry's two numbers."""
        if number >= self._tail_first:
            start = (number - self._tail_first) * self.entry.size
            fields: tuple[int, int] = self.entry.unpack_from(self._tail, start)
            return fields
        first, second = self._page
        at = number - self._page_first
        if not 0 <= at < len(first):
            with closing(self.directory.open(self.path)) as file:
                return self._read_entries(file, number, 1)[0]
        return first[at], second[at]

    def _read_entries(self, file: File, first: int, count: int) -> list[tuple[int, int]]:
        size = self.entry.size
        entries = file.read(first * size, count * size)
        if len(entries) < count * size:
            raise CorruptMessage(f"{self.path} is shorter than its entries")
        return list(self.entry.iter_unpack(entries))

    def _last_at_most(self, target: int, field: int) -> int:
        """Return the number of the last entry whose field is at most target, or -1."""
        count, first = self.count, self._tail_first
        if first < count and self.entry.unpack_from(self._tail, 0)[field] <= target:
            return self._search_tail(target, field)
        if not first:
            return -1
        page = self._page[field]
        known = bisect_right(page, target)
        if known < len(page) and (known or not self._page_first):
            return self._page_first + known - 1
        return self._search_file(first, target, field)

    def _search_tail(self, target: int, field: int) -> int:
        """Return the number of the last entry in memory whose field is at most target."""
        tail, size, unpack_from = self._tail, self.entry.size, self.entry.unpack_from
        return (
            self._tail_first
            + _count_at_most(
                len(tail) // size, lambda number: unpack_from(tail, number * size)[field], target
            )
            - 1
        )

    def _search_file(self, count: int, target: int, field: int) -> int:
        """Search the entries in the file; cache a page from the one found on, or from the first."""
        with closing(self.directory.open(self.path)) as file:
            found = (
                _count_at_most(
                    count, lambda number: self._read_entries(file, number, 1)[0][field], target
                )
                - 1
            )
            start = max(found, 0)
            page = self._read_entries(file, start, min(PAGE_ENTRIES, count - start))
            first, second = zip(*page, strict=True)
            self._page = (array("q", first), array("q", second))
            self._page_first = start
        return found


def _count_at_most(count: int, value: Callable[[int], int], target: int) -> int:
    """Return how many of the first `count` increasing values are at most target."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if value(middle) <= target:
            low = middle + 1
        else:
            high = middle
    return low
