"""Where stores keep their bytes: a map that is scanned in the order of its keys.

Kafka: org.apache.kafka.streams.state.KeyValueStore of Bytes, ThreadCache,
state.internals.MemoryNavigableLRUCache.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Protocol

from ottla.formats.primitives import Packing
from ottla.streams.data.serdes import LONG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_ENTRY = Packing(">qqI")
MIN_SEGMENT_MS: Final = 60_000
"""The shortest segment of a store that expires, as in Kafka."""


class Backend(Protocol):
    """A map from bytes to bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key; None removes it."""

    def items(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from a key on, up to another (exclusive), in the order of keys.

        Entries may be set and removed meanwhile: a new key is not there, a removed one no more.
        """


class OrderedKeys:
    """Keys in their order, which stays while keys are added and removed."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = sorted(keys)

    def add(self, key: bytes) -> None:
        """Add a key, if it is not there."""
        index = bisect_left(self._keys, key)
        if self._keys[index : index + 1] != [key]:
            self._keys.insert(index, key)

    def remove(self, key: bytes) -> None:
        """Remove a key, if it is there."""
        index = bisect_left(self._keys, key)
        if self._keys[index : index + 1] == [key]:
            del self._keys[index]

    def between(self, first: bytes, end: bytes | None) -> list[bytes]:
        """Return the keys from one on, up to another (exclusive)."""
        start = bisect_left(self._keys, first)
        return self._keys[start : None if end is None else bisect_left(self._keys, end)]


def end_of_prefix(prefix: bytes) -> bytes | None:
    """Return the first key after all that start with a prefix; None where none is after them."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


class MemoryBackend:
    """A map in memory."""

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self._order: OrderedKeys | None = None
        """None until a scan needs it."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        return self._data.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key; None removes it."""
        if value is None:
            self._data.pop(key, None)
        else:
            self._data[key] = value
        if self._order is not None:
            (self._order.remove if value is None else self._order.add)(key)

    def items(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from a key on, up to another (exclusive), in the order of keys."""
        if self._order is None:
            self._order = OrderedKeys(self._data)
        for key in self._order.between(first, end):
            value = self._data.get(key)
            if value is not None:
                yield key, value


Entry = tuple[int, int, bytes]
"""Two numbers (a window's start and end, a version's time) and a value."""


def pack_entries(entries: Iterable[Entry]) -> bytes:
    """Return a list of entries as bytes."""
    parts = []
    for first, second, value in entries:
        parts += [_ENTRY.pack(first, second, len(value)), value]
    return b"".join(parts)


def unpack_entries(data: bytes | None) -> list[Entry]:
    """Return the entries that `pack_entries` has written."""
    found: list[Entry] = []
    position = 0
    while data is not None and position < len(data):
        first, second, length = _ENTRY.unpack_from(data, position)
        position += _ENTRY.size
        found.append((first, second, data[position : position + length]))
        position += length
    return found


class EntryLists:
    """Lists of entries by key, which stay decoded until `flush`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lists: dict[bytes, list[Entry]] = {}
        self._changed: dict[bytes, None] = {}

    def get(self, key: bytes) -> list[Entry]:
        """Return the list of a key, to be changed only through `put`."""
        found = self._lists.get(key)
        if found is None:
            found = self._lists[key] = unpack_entries(self._backend.get(key))
        return found

    def put(self, key: bytes, entries: list[Entry]) -> None:
        """Set the list of a key."""
        self._lists[key] = entries
        self._changed[key] = None

    def keys(self) -> list[bytes]:
        """Return the keys with entries, in order."""
        self.flush()
        return [key for key, _ in self._backend.items()]

    def flush(self) -> None:
        """Write the changed lists."""
        for key in self._changed:
            entries = self._lists[key]
            self._backend.put(key, pack_entries(entries) if entries else None)
        self._changed.clear()

    def forget(self) -> None:
        """Write the changed lists and drop all decoded ones."""
        self.flush()
        self._lists.clear()


class LruBackend:
    """A map of limited size, over one whose values have the number of their last use.

    The order of uses lasts from one micro-batch to the next, and over restarts. A get and a put are
    uses, a scan is none. Kafka restores such a store from its changelog, in the order of last puts.
    """

    def __init__(self, backend: Backend, max_entries: int) -> None:
        self._backend, self._max_entries = backend, max_entries
        self._uses: dict[bytes, None] | None = None
        """The keys by their last use, the earliest first; None until one is needed."""
        self._count = 0

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, which is a use."""
        data = self._backend.get(key)
        if data is None:
            return None
        self._use(key, data[LONG.size :])
        return data[LONG.size :]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key, and drop the least recently used one if there are too many."""
        if value is None:
            self._ordered().pop(key, None)
            self._backend.put(key, None)
            return
        self._use(key, value)
        self._evict()

    def items(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from a key on, up to another (exclusive), in the order of keys."""
        for key, data in self._backend.items(first, end):
            yield key, data[LONG.size :]

    def _use(self, key: bytes, value: bytes) -> None:
        uses = self._ordered()
        uses.pop(key, None)
        uses[key] = None
        self._count += 1
        self._backend.put(key, LONG.pack(self._count) + value)

    def _evict(self) -> None:
        uses = self._ordered()
        while len(uses) > self._max_entries:
            key = next(iter(uses))
            del uses[key]
            self._backend.put(key, None)

    def _ordered(self) -> dict[bytes, None]:
        if self._uses is None:
            numbers = {key: LONG.unpack_from(data)[0] for key, data in self._backend.items()}
            self._uses = dict.fromkeys(sorted(numbers, key=numbers.__getitem__))
            self._count = max(numbers.values(), default=0)
        return self._uses
