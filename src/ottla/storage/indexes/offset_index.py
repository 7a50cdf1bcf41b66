"""Maps offsets to positions in the segment, one entry every index.interval.bytes.

An entry holds the last offset of a batch, less the segment's base, and the position where that
batch starts. Kafka: org.apache.kafka.storage.internals.log.OffsetIndex.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, NamedTuple

from ottla.errors import CorruptMessage
from ottla.storage.indexes.entry_index import EntryIndex

MAX_RELATIVE_OFFSET = 0x7FFF_FFFF


class OffsetPosition(NamedTuple):
    """An offset and the byte where its batch starts."""

    offset: int
    position: int


class OffsetIndex(EntryIndex):
    """`.index`: int32 relative offset, int32 position."""

    entry: ClassVar[Struct] = Struct(">ii")

    __slots__ = ()

    def append(self, offset: int, position: int) -> bool:
        """Add an entry after the last one; return `is_full` after it."""
        count = self._append(self.entry.pack(offset - self.base_offset, position))
        return count >= self.max_entries

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry at or below offset; the segment's start when there is none."""
        number = self._last_at_most(offset - self.base_offset, 0)
        if number < 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = self._fields(number)
        if position < 0:
            raise CorruptMessage(f"{self.path} points at position {position}")
        return OffsetPosition(self.base_offset + relative, position)

    def offset_from(self, position: int, otherwise: int) -> int:
        """Return the offset of the first entry that points at position or after it."""
        number = self._last_at_most(position - 1, 1) + 1
        return self.base_offset + self._fields(number)[0] if number < self.count else otherwise

    def last(self) -> OffsetPosition:
        """Return the last entry; the segment's start when the index is empty."""
        if self.count == 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = self._fields(self.count - 1)
        if relative < 0 or position < 0:
            raise CorruptMessage(f"{self.path} ends in ({relative}, {position})")
        return OffsetPosition(self.base_offset + relative, position)

    def count_below(self, offset: int) -> int:
        """Return the number of entries below offset; CorruptMessage when that cannot be read."""
        return self._last_at_most(offset - self.base_offset - 1, 0) + 1

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above offset."""
        self._truncate_entries(self.count_below(offset))
