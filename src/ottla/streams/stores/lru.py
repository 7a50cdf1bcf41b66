"""A map of a limited number of entries, which drops the one that was used least recently.

Kafka: org.apache.kafka.streams.state.internals.MemoryNavigableLRUCache.

Each value has the number of its last use before it, so that the order of uses lasts from one
micro-batch to the next, and over restarts. A get and a put are uses, a scan is none. Kafka restores
such a store from its changelog, where the order is that of the last puts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.serdes import LONG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.streams.stores.backend import Backend


class LruBackend:
    """A map over another one, whose values have the numbers of their last uses."""

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
