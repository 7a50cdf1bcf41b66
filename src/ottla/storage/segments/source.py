"""The segments of a log as its readers see them: fetches and searches by time.

Today all of them are local. Segments of a remote tier can stand before those: a source then joins
both, and readers stay as they are. Writes, truncation, flushes and retention work on the local
segments, which alone can change.

Kafka: none; UnifiedLog asks RemoteLogManager where its own segments end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from ottla.storage.batches import BatchHeader
    from ottla.storage.directory import File
    from ottla.storage.indexes.offset_index import OffsetIndex
    from ottla.storage.indexes.transaction_index import TransactionIndex
    from ottla.storage.log.config import LogConfig


class ReadableSegment(Protocol):
    """Batches of consecutive offsets in one file, with indexes; reads may raise OSError."""

    @property
    def base_offset(self) -> int:
        """The offset from which its name says that it begins."""

    @property
    def size(self) -> int:
        """Bytes of its file."""

    @property
    def file(self) -> File:
        """The open file of batches."""

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, -1 without one; read from the files on first use."""

    @property
    def knows_max_timestamp(self) -> bool:
        """Whether `max_timestamp` needs no file."""

    @property
    def offset_index(self) -> OffsetIndex:
        """Positions of some offsets."""

    @property
    def transaction_index(self) -> TransactionIndex:
        """Aborted transactions that end in the segment."""

    def reopened(self, config: LogConfig) -> ReadableSegment:
        """Return an object of its own over the same files, for a worker."""

    def opened(self) -> AbstractContextManager[None]:
        """Open the file of an object from `reopened` for the length of a block."""

    def place_of(self, offset: int) -> tuple[int, int] | None:
        """Return position and size of the batch that holds offset, or of the next one."""

    def position_of(self, offset: int) -> int | None:
        """Return where the batch that holds offset, or the next, starts; None after the last."""

    def position_before(self, timestamp: int) -> int:
        """Return an offset before which no record is as new as timestamp, by the time index."""

    def walk(self, offset: int) -> Iterator[BatchHeader]:
        """Yield the headers from the batch that holds offset on."""


class SegmentSource(Protocol):
    """All segments of a log that can be read, by base offset; never empty."""

    @property
    def ordered(self) -> Sequence[ReadableSegment]:
        """The segments."""

    @property
    def base_offsets(self) -> Sequence[int]:
        """Their base offsets, increasing."""

    def end_of(self, number: int, log_end_offset: int) -> int:
        """Return the offset after the last one of the segment with this number."""
