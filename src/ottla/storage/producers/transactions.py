"""The transactions of one log that readers with read_committed must not pass, by first offset.

A transaction is open until its marker is appended, and unreplicated until the marker is below the
high watermark. The last stable offset is the lowest first offset of either kind. A follower gets
many transactions at once, a restart and a rebuild after a truncation find them producer by
producer: the order is the map's own, whatever the order of insertion.

Kafka: ProducerStateManager's ongoingTxns and unreplicatedTxns (TreeMap).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ottla.storage.producers.append import CompletedTransaction

V = TypeVar("V")

_MAX_SINGLE_REMOVALS: Final = 64
"""Keys removed one by one: each moves the list's tail, 20 µs for 100,000 keys. Filtering the whole
list costs as much as some hundred of them."""


class SortedMap(Generic[V]):
    """A map of integers whose order is that of its keys."""

    __slots__ = ("_keys", "_values")

    def __init__(self) -> None:
        self._keys: list[int] = []
        self._values: dict[int, V] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: int) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def __getitem__(self, key: int) -> V:
        return self._values[key]

    def __setitem__(self, key: int, value: V) -> None:
        if key not in self._values:
            keys = self._keys
            if keys and key < keys[-1]:
                insort(keys, key)
            else:
                keys.append(key)
        self._values[key] = value

    def __delitem__(self, key: int) -> None:
        del self._values[key]
        del self._keys[bisect_left(self._keys, key)]

    def remove(self, keys: Collection[int]) -> None:
        """Remove many keys, each of which is there."""
        if len(keys) <= _MAX_SINGLE_REMOVALS:
            for key in keys:
                del self[key]
            return
        for key in keys:
            del self._values[key]
        self._keys = [key for key in self._keys if key in self._values]

    def first_key(self, *, other_than: int | None = None) -> int | None:
        """Return the lowest key but this one; None when there is no other."""
        for key in self._keys[:2]:
            if key != other_than:
                return key
        return None


class UnstableTransactions:
    """The open transactions, and those whose markers are not replicated."""

    __slots__ = ("_markers", "_open", "_unreplicated")

    def __init__(self) -> None:
        self._open: SortedMap[int] = SortedMap()  # first offset → producer id
        self._unreplicated: SortedMap[int] = SortedMap()  # first offset → offset of the marker
        self._markers: deque[tuple[int, int]] = deque()
        """The unreplicated ones in order of their markers: (offset of the marker, first offset)."""

    def __len__(self) -> int:
        return len(self._open) + len(self._unreplicated)

    @property
    def first_offset(self) -> int | None:
        """The first unstable offset; None without any."""
        first_open, first_decided = self._open.first_key(), self._unreplicated.first_key()
        if first_open is None or first_decided is None:
            return first_decided if first_open is None else first_open
        return min(first_open, first_decided)

    @property
    def open(self) -> list[tuple[int, int]]:
        """First offsets and producers of the open ones, in order; for checks and repairs."""
        return [(first, self._open[first]) for first in self._open]

    @property
    def unreplicated(self) -> list[tuple[int, int]]:
        """First offsets and markers' offsets of the unreplicated ones, in order; for checks."""
        return [(first, self._unreplicated[first]) for first in self._unreplicated]

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Add an open transaction."""
        self._open[first_offset] = producer_id

    def oldest_producer(self) -> int | None:
        """Return the producer of the oldest open transaction; None without any."""
        first = self._open.first_key()
        return None if first is None else self._open[first]

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset as it is once `completed`, which is open, is complete.

        A follower gets several markers at once: then later transactions have begun, of the same
        producer as well, which the marker does not wait for. Kafka passes over those of the same
        producer, and so names an offset that is too high.
        """
        stable = completed.last_offset + 1
        other = self._open.first_key(other_than=completed.first_offset)
        return stable if other is None else min(stable, other)

    def complete(self, completed: CompletedTransaction) -> None:
        """Close a transaction, in order of the markers; it stays until its marker is replicated."""
        del self._open[completed.first_offset]
        self._unreplicated[completed.first_offset] = completed.last_offset
        self._markers.append((completed.last_offset, completed.first_offset))

    def replicated_up_to(self, high_watermark: int) -> bool:
        """Remove those whose markers are below; return whether there were any."""
        markers = self._markers
        if not markers or markers[0][0] >= high_watermark:
            return False
        replicated = []
        while markers and markers[0][0] < high_watermark:
            replicated.append(markers.popleft()[1])
        self._unreplicated.remove(replicated)
        return True
