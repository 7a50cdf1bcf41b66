"""Maps timestamps to offsets: no batch before an entry's offset is newer than its timestamp.

Kafka: org.apache.kafka.storage.internals.log.TimeIndex.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ottla.records.batch import NO_TIMESTAMP
from ottla.storage.indexes.entry_index import EntryIndex

if TYPE_CHECKING:
    from ottla.storage.directory import Directory


class TimestampOffset(NamedTuple):
    """The largest timestamp so far and the last offset of its batch."""

    timestamp: int
    offset: int


class TimeIndex(EntryIndex):
    """`.timeindex`: int64 timestamp, int32 relative offset."""

    entry: ClassVar[Struct] = Struct(">qi")

    __slots__ = ("_last_timestamp",)

    def __init__(
        self, directory: Directory, path: str, *, base_offset: int, max_bytes: int
    ) -> None:
        super().__init__(directory, path, base_offset=base_offset, max_bytes=max_bytes)
        self._last_timestamp: int | None = None  # of the last entry; unknown before its first use

    @property
    def is_full(self) -> bool:
        """Whether only the entry reserved for the roll is free."""
        return self._count >= self.max_entries - 1

    def last(self) -> TimestampOffset:
        """Return the last entry; no timestamp at the base offset when there is none."""
        if self.count == 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = self._fields(self.count - 1)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def create(self, *, preallocate: bool) -> None:
        """Create an empty index, preallocated for an active segment or not."""
        super().create(preallocate=preallocate)
        self._last_timestamp = None

    def append_if_newer(self, timestamp: int, offset: int) -> bool:
        """Add an entry when the timestamp increased; return `is_full` after it.

        Offsets never decrease.
        """
        if self._last_timestamp is None:
            self._last_timestamp = self.last().timestamp
        if timestamp > self._last_timestamp:
            self._append(self.entry.pack(timestamp, offset - self.base_offset))
            self._last_timestamp = timestamp
        return self._count >= self.max_entries - 1

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry that is not newer than timestamp."""
        number = self._last_at_most(timestamp, 0)
        if number < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        found, relative = self._fields(number)
        return TimestampOffset(found, self.base_offset + relative)

    def count_below(self, offset: int) -> int:
        """Return the number of entries below offset; CorruptMessage when that cannot be read."""
        return self._last_at_most(offset - self.base_offset - 1, 1) + 1

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above offset."""
        self._last_timestamp = None
        self._truncate_entries(self.count_below(offset))
