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
        return (self._batches[first] for first in self._firsts.copy())

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

    def overlapping(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches with offsets of a range, both ends included."""
        begin = bisect_right(self._firsts, first_offset)
        if begin and self._batches[self._firsts[begin - 1]].last_offset >= first_offset:
            begin -= 1
        end = bisect_right(self._firsts, last_offset)
        return [self._batches[first] for first in self._firsts[begin:end]]

    def remove(self, batch: InFlightBatch) -> None:
        """Remove a batch."""
        del self._batches[batch.first_offset]
        del self._firsts[bisect_left(self._firsts, batch.first_offset)]

    def drop_below(self, offset: int) -> None:
        """Forget the offsets below one; locks of them end."""
        end = bisect_left(self._firsts, offset)
        dropped = [self._batches.pop(first) for first in self._firsts[:end]]
        del self._firsts[:end]
        if dropped and dropped[-1].last_offset >= offset:
            cut = dropped.pop()
            cut.cut_below(offset)
            self._firsts.insert(0, cut.first_offset)
            self._batches[cut.first_offset] = cut
        for batch in dropped:
            for _, _, state in batch.states():
                state.cancel_lock()
