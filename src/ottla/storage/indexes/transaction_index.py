"""The aborted transactions of one segment, for read_committed consumers.

The file is created on the first abort. An entry has the last stable offset at the time of the
abort, so that a reader knows when no older transaction is relevant any more.

Kafka: org.apache.kafka.storage.internals.log.TransactionIndex, AbortedTxn.
"""

from __future__ import annotations

from contextlib import closing
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import CorruptMessage

if TYPE_CHECKING:
    from ottla.storage.directory import Directory, File

ENTRY = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """One aborted transaction; last_offset is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """`.txnindex`: int16 version 0, then producer id and three offsets, 34 bytes an entry."""

    __slots__ = ("_dirty", "_entries", "directory", "path")

    def __init__(self, directory: Directory, path: str) -> None:
        self.directory = directory
        self.path = path
        self._entries: list[AbortedTransaction] | None = None
        self._dirty = True  # an earlier process may have written it without a sync

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries, oldest first; CorruptMessage when the file is invalid."""
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    def _load(self) -> list[AbortedTransaction]:
        if not self.directory.exists(self.path):
            return []
        data = self.directory.read_file(self.path)
        if len(data) % ENTRY.size:
            raise CorruptMessage(f"{self.path} has {len(data)} bytes, not whole entries")
        entries = []
        for version, *fields in ENTRY.iter_unpack(data):
            entry = AbortedTransaction(*fields)
            if version != 0 or entry.last_offset < entry.first_offset:
                raise CorruptMessage(f"{self.path} holds {entry} of version {version}")
            entries.append(entry)
        return entries

    def append(self, entry: AbortedTransaction) -> None:
        """Add one and write it at once: aborts are rare. Not added on OSError."""
        entries = self.entries()
        self.directory.write_at(self.path, len(entries) * ENTRY.size, ENTRY.pack(0, *entry))
        self._dirty = True
        entries.append(entry)

    def truncate_to(self, offset: int) -> None:
        """Drop every transaction that ends at or after offset."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            file = self.directory.open(self.path, create=True)
            file.truncate(len(kept) * ENTRY.size)
            file.close()
            self._dirty = True
            self._entries = kept

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
        self._entries = entries

    def reset(self) -> None:
        """Drop all entries."""
        if self.directory.exists(self.path):
            file = self.directory.open(self.path)
            file.truncate(0)
            file.close()
        self._entries = []

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
        self._entries = None
