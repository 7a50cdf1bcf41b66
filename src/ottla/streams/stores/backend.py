"""Where stores keep their bytes: a map that is scanned in the order of its keys.

Kafka: org.apache.kafka.streams.state.KeyValueStore of Bytes, ThreadCache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ottla.streams.packing import Packing

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

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all entries in the order of their keys."""


class MemoryBackend:
    """A map in memory."""

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        return self._data.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key; None removes it."""
        if value is None:
            self._data.pop(key, None)
        else:
            self._data[key] = value

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all entries in the order of their keys."""
        yield from sorted(self._data.items())


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
