"""The aborted transactions of one segment, for read_committed consumers.

The file is created on the first abort. An entry has the last stable offset at the time of the
abort: whatever follows an entry begins there or later, so that a reader knows when to stop. Within
a segment a reader does not depend on it: the lowest first offset of each block of entries is kept
in memory, and a search decodes no entry of the other blocks. One long transaction keeps the last
stable offset low while thousands of others abort.

Kafka: org.apache.kafka.storage.internals.log.TransactionIndex, AbortedTxn.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import closing
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage

if TYPE_CHECKING:
    from ottla.storage.directory import Directory, File

ENTRY = Struct(">hqqqq")
_FIRST_OFFSET = Struct(">10xq16x")
_BLOCK_ENTRIES: Final = 64
"""A hit costs the search of a block, 10 µs; a miss one comparison."""


class AbortedTransaction(NamedTuple):
    """One aborted transaction; last_offset is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """`.txnindex`: int16 version 0, then producer id and three offsets, 34 bytes an entry.

    Kept as bytes and decoded on request: a segment may have the aborts of 100,000 producers.
    """

    __slots__ = ("_data", "_dirty", "_last", "_lowest", "directory", "path")

    def __init__(self, directory: Directory, path: str) -> None:
        self.directory = directory
        self.path = path
        self._data: bytearray | None = None
        self._lowest: list[int] | None = None
        """The lowest first offset of each block of entries, and"""
        self._last: AbortedTransaction | None = None
        """the last entry: both are kept when the content is released."""
        self._dirty = True  # an earlier process may have written it without a sync

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries, oldest first; CorruptMessage when the file is invalid."""
        return [self._decoded(fields) for fields in ENTRY.iter_unpack(self._content())]

    def copied(self) -> TransactionIndex:
        """Return another object with the entries of now, for a worker; nothing is decoded."""
        copy = TransactionIndex(self.directory, self.path)
        copy._data = bytearray(self._content())
        return copy

    def overlapping(self, offset: int, end: int) -> list[AbortedTransaction]:
        """Return those that end at or after offset and begin below end; CorruptMessage as others.

        Logarithmic in the number of entries, and linear in what it returns.
        """
        lowest = self._summary()
        if not lowest or min(lowest) >= end:
            return []
        found: list[AbortedTransaction] = []
        content, start = self._content(), self.count_below(offset)
        for block in range(start // _BLOCK_ENTRIES, len(lowest)):
            if lowest[block] < end:
                first = max(block * _BLOCK_ENTRIES, start) * ENTRY.size
                entries = content[first : (block + 1) * _BLOCK_ENTRIES * ENTRY.size]
                found += [
                    self._decoded(fields)
                    for fields in ENTRY.iter_unpack(entries)
                    if fields[2] < end
                ]
        return found

    def is_followed_below(self, end: int) -> bool:
        """Whether transactions of later segments may begin below end.

        They begin at the last entry's last stable offset or later, which is at most the offset
        after its marker.
        """
        self._summary()
        last = self._last
        return last is None or min(last.last_stable_offset, last.last_offset + 1) < end

    def _summary(self) -> list[int]:
        """Return the lowest first offsets of the blocks; for found files a worker computed them."""
        lowest = self._lowest
        if lowest is None:
            lowest = self._lowest = []
            self._summarize_from(0)
        return lowest

    def _summarize_from(self, block: int) -> None:
        lowest = self._lowest
        if lowest is None:
            return
        content, size = self._content(), _BLOCK_ENTRIES * ENTRY.size
        del lowest[block:]
        for start in range(block * size, len(content), size):
            lowest.append(min(_FIRST_OFFSET.iter_unpack(content[start : start + size]))[0])
        self._last = None
        if content:
            self._last = self._decoded(self._fields(self._count() - 1))

    def _count(self) -> int:
        return len(self._content()) // ENTRY.size

    def _content(self) -> bytearray:
        if self._data is None:
            data = self.directory.read_file(self.path) if self.directory.exists(self.path) else b""
            if len(data) % ENTRY.size:
                raise CorruptMessage(f"{self.path} has {len(data)} bytes, not whole entries")
            self._data = bytearray(data)
        return self._data

    def _fields(self, number: int) -> tuple[int, ...]:
        return ENTRY.unpack_from(self._content(), number * ENTRY.size)

    def _decoded(self, fields: tuple[int, ...]) -> AbortedTransaction:
        version, entry = fields[0], AbortedTransaction(*fields[1:])
        if version != 0 or entry.last_offset < entry.first_offset:
            raise CorruptMessage(f"{self.path} holds {entry} of version {version}")
        return entry

    def count_below(self, offset: int) -> int:
        """Return how many transactions end before offset: they are in order of their markers.

        CorruptMessage when the file has no whole entries.
        """
        return bisect_left(range(self._count()), offset, key=lambda number: self._fields(number)[3])

    def append(self, entry: AbortedTransaction) -> None:
        """Add one and write it at once: aborts are rare. Not added on OSError."""
        data, packed = self._content(), ENTRY.pack(0, *entry)
        self.directory.write_at(self.path, len(data), packed)
        self._dirty = True
        data += packed
        lowest = self._lowest
        if lowest is not None:
            if len(data) // ENTRY.size % _BLOCK_ENTRIES == 1:
                lowest.append(entry.first_offset)
            else:
                lowest[-1] = min(lowest[-1], entry.first_offset)
            self._last = entry

    def truncate_to(self, offset: int) -> None:
        """Drop every transaction that ends at or after offset."""
        kept_bytes = self.count_below(offset) * ENTRY.size
        if kept_bytes < len(self._content()):
            self._truncate_file(kept_bytes)
            self._dirty = True
            del self._content()[kept_bytes:]
            self._summarize_from(kept_bytes // ENTRY.size // _BLOCK_ENTRIES)

    def _truncate_file(self, size: int) -> None:
        with closing(self.directory.open(self.path, create=True)) as file:
            file.truncate(size)

    def replace(self, entries: list[AbortedTransaction]) -> None:
        """Replace the entries durably: entries that were flushed once must not get lost.

        Waits for the disk, but only when recovery found entries that differ from the file's.
        """
        data = b"".join(ENTRY.pack(0, *entry) for entry in entries)
        if self.directory.exists(self.path):
            if self.directory.read_file(self.path) != data:
                self.directory.write_file_atomically(self.path, data)
        elif entries:
            self.directory.write_file_atomically(self.path, data)
        self._replaced(bytearray(data))

    def _replaced(self, content: bytearray) -> None:
        self._data = content
        self._lowest = self._last = None

    def reset(self) -> None:
        """Drop all entries."""
        if self.directory.exists(self.path):
            self._truncate_file(0)
        self._replaced(bytearray())

    def pin_for_sync(self) -> File | None:
        """Return the file, or None when it is unchanged.

        The file is pinned and closed, so that its last `unpin` closes the descriptor.
        """
        if not self._dirty:
            return None
        if not self.directory.exists(self.path):
            self._dirty = False
            return None
        with closing(self.directory.open(self.path)) as file:
            file.pin()
        self._dirty = False
        return file

    def sync_again(self) -> None:
        """Mark the file dirty again: its last sync may not have happened."""
        self._dirty = True

    # At start, in a worker

    def is_consistent(self, base_offset: int) -> bool:
        """Whether this can be the index of the segment at base_offset.

        Its markers are in order and not before the segment, and no producer begins a transaction
        before its last one ended.
        """
        try:
            content = self._content()
        except CorruptMessage:
            return False
        marker, ends = base_offset - 1, dict[int, int]()
        for version, producer_id, first, last, _ in ENTRY.iter_unpack(content):
            if version != 0 or last <= marker or not ends.get(producer_id, -1) < first <= last:
                return False
            marker = ends[producer_id] = last
        self._summary()
        return True

    def limit_last_stable_offsets(self, first_later: int) -> tuple[int, int]:
        """Lower those above the first offset of a transaction that was open at the abort.

        first_later is the lowest first offset of the aborts after the last entry, and of what is
        open now. A lower one is right for readers, whatever ended meanwhile otherwise: they look
        for aborts only. Returns how many were lowered, and the lowest first offset with those here.
        """
        content = bytearray(self._content())
        lowered_count = 0
        for position in range(len(content) - ENTRY.size, -1, -ENTRY.size):
            version, producer_id, first, last, stable = ENTRY.unpack_from(content, position)
            limit = min(first_later, last + 1)
            if stable > limit:
                ENTRY.pack_into(content, position, version, producer_id, first, last, limit)
                lowered_count += 1
            first_later = min(first_later, first)
        if lowered_count:
            self.replace([self._decoded(one) for one in ENTRY.iter_unpack(content)])
        self._summary()
        return lowered_count, first_later

    def release(self) -> None:
        """Drop the cached entries, but not what lets a search pass over them."""
        self._data = None
