"""Batches in flight in the order of their offsets.

Kafka: the ConcurrentSkipListMap of SharePartition.cachedState.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.replication.share.states import InFlightBatch


class BatchMap:
    """Batches by first offset; they do not overlap."""

    __slots__ = ("_batches", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: dict[int, InFlightBatch] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter([self._batches[first] for first in self._firsts])

    @property
    def first(self) -> InFlightBatch:
        """The batch with the lowest offsets."""
        return self._batches[self._firsts[0]]

    @property
    def last(self) -> InFlightBatch:
        """The batch with the highest offsets."""
        return self._batches[self._firsts[-1]]

    def add(self, batch: InFlightBatch) -> None:
        """Add a batch, or replace the one with the same first offset."""
        first = batch.first_offset
        if first not in self._batches:
            self._firsts.insert(bisect_left(self._firsts, first), first)
        self._batches[first] = batch

    def floor(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at an offset or before it."""
        index = bisect_right(self._firsts, offset) - 1
        return None if index < 0 else self._batches[self._firsts[index]]

    def higher(self, offset: int) -> InFlightBatch | None:
        """Return the first batch that begins after an offset."""
        index = bisect_right(self._firsts, offset)
        return None if index == len(self._firsts) else self._batches[self._firsts[index]]

    def between(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches that begin in a range, both ends included."""
        begin = bisect_left(self._firsts, first_offset)
        end = bisect_right(self._firsts, last_offset)
        return [self._batches[first] for first in self._firsts[begin:end]]

    def drop_below(self, offset: int) -> None:
        """Remove the batches that end below an offset."""
        end = bisect_left(self._firsts, offset)
        if end and self._batches[self._firsts[end - 1]].last_offset >= offset:
            end -= 1
        for first in self._firsts[:end]:
            del self._batches[first]
        del self._firsts[:end]

    def clear(self) -> None:
        """Remove all batches."""
        self._firsts.clear()
        self._batches.clear()
