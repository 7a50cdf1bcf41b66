"""The aborted transactions of one segment, for read_committed consumers.

The file is created on the first abort. An entry has the last stable offset at the time of the
abort, so that a reader knows when no older transaction is relevant any more.

Kafka: org.apache.kafka.storage.internals.log.TransactionIndex, AbortedTxn.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import closing
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import CorruptMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.storage.directory import Directory, File

ENTRY = Struct(">hqqqq")


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

    __slots__ = ("_data", "_dirty", "directory", "path")

    def __init__(self, directory: Directory, path: str) -> None:
        self.directory = directory
        self.path = path
        self._data: bytearray | None = None
        self._dirty = True  # an earlier process may have written it without a sync

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries, oldest first; CorruptMessage when the file is invalid."""
        return [self._decoded(fields) for fields in ENTRY.iter_unpack(self._content())]

    def copied(self) -> TransactionIndex:
        """Return another object with the entries of now, for a worker; nothing is decoded."""
        copy = TransactionIndex(self.directory, self.path)
        copy._data = bytearray(self._content())
        return copy

    def entries_from(self, offset: int) -> Iterator[AbortedTransaction]:
        """Yield the transactions that end at or after offset; CorruptMessage for an invalid one."""
        for number in range(self.count_below(offset), self._count()):
            yield self._decoded(self._fields(number))

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

    def truncate_to(self, offset: int) -> None:
        """Drop every transaction that ends at or after offset."""
        kept_bytes = self.count_below(offset) * ENTRY.size
        if kept_bytes < len(self._content()):
            self._truncate_file(kept_bytes)
            self._dirty = True
            del self._content()[kept_bytes:]

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
        self._data = bytearray(data)

    def reset(self) -> None:
        """Drop all entries."""
        if self.directory.exists(self.path):
            self._truncate_file(0)
        self._data = bytearray()

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

    def release(self) -> None:
        """Drop the cached entries."""
        self._data = None
