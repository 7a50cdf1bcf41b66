"""Window stores: values by key and start of a window, for as long as the retention.

Kafka: org.apache.kafka.streams.state.WindowStore. Entries lie in segments of the retention's half;
a scan that a new segment makes due deletes those that are over.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Final

from ottla.streams.records import ValueAndTimestamp
from ottla.streams.serdes import LONG
from ottla.streams.stores.backend import MIN_SEGMENT_MS, EntryLists
from ottla.streams.stores.key_value import key_bytes
from ottla.streams.windows import Window, Windowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.streams.stores.backend import Backend, Entry
    from ottla.streams.stores.specs import StoreSpec

_OBSERVED: Final = b""
"""The key of the store's own stream time; keys of segments are longer."""


class WindowStore:
    """Values by key and start of a window; without duplicates the last one counts."""

    def __init__(self, backend: Backend, spec: StoreSpec) -> None:
        assert spec.key is not None
        assert spec.value is not None
        self._key, self._value, self._spec = spec.key, spec.value, spec
        self._backend = backend
        self._lists = EntryLists(backend)
        self._segment_ms = max(spec.retention_ms // 2, MIN_SEGMENT_MS)
        self._observed: int = LONG.unpack(backend.get(_OBSERVED) or LONG.pack(-1))[0]
        self._saved = self._observed

    def put(self, key: Any, value: Any, start: int) -> None:
        """Set the value of a key's window; None removes it. Windows that are over are ignored."""
        before = self._observed
        self._observed = max(before, start)
        if start < self._oldest():
            return
        if self._segment(self._observed) != self._segment(before):
            self._delete_expired()
        place = self._place(self._segment(start), key_bytes(self._key, key))
        data = self._write(value)
        entries = self._lists.get(place)
        if self._spec.has_duplicates:
            if data is not None:
                index = bisect_right(entries, start, key=lambda one: one[0])
                self._lists.put(place, [*entries[:index], (start, 0, data), *entries[index:]])
            return
        index = bisect_left(entries, start, key=lambda one: one[0])
        rest = entries[index:]
        if rest and rest[0][0] == start:
            rest = rest[1:]
        new: list[Entry] = [] if data is None else [(start, 0, data)]
        self._lists.put(place, [*entries[:index], *new, *rest])

    def get(self, key: Any, start: int) -> Any:
        """Return the value of a key's window, None without one."""
        for _, value in self.fetch(key, start, start):
            return value
        return None

    def fetch(self, key: Any, first: int, last: int) -> Iterator[tuple[int, Any]]:
        """Yield starts and values of a key's windows that start within a span, by time."""
        first = max(first, self._oldest(), 0)
        data = key_bytes(self._key, key)
        for segment in range(self._segment(first), self._segment(max(last, first)) + 1):
            entries = self._lists.get(self._place(segment, data))
            for start, _, value in list(entries):
                if first <= start <= last:
                    yield start, self._read(value)

    def fetch_all(self, first: int, last: int) -> Iterator[tuple[Windowed, Any]]:
        """Yield the windows of all keys that start within a span, by time and key."""
        first = max(first, self._oldest())
        found = []
        for place in self._places():
            if self._segment(first) <= LONG.unpack(place[:8])[0] <= self._segment(last):
                for start, _, value in self._lists.get(place):
                    if first <= start <= last:
                        found.append((start, place[8:], value))
        for start, key, value in sorted(found, key=lambda one: one[:2]):
            window = Window(start, start + self._spec.window_size_ms)
            yield Windowed(self._key.deserialize(key), window), self._read(value)

    def fetch_keys(
        self, first_key: Any, last_key: Any, first: int, last: int
    ) -> Iterator[tuple[Windowed, Any]]:
        """Yield the windows of a range of keys, both included, that start within a span.

        Keys are compared by their bytes; None is no limit.
        """
        low = b"" if first_key is None else key_bytes(self._key, first_key)
        high = None if last_key is None else key_bytes(self._key, last_key)
        for windowed, value in self.fetch_all(first, last):
            data = key_bytes(self._key, windowed.key)
            if low <= data and (high is None or data <= high):
                yield windowed, value

    def backward_fetch_keys(
        self, first_key: Any, last_key: Any, first: int, last: int
    ) -> Iterator[tuple[Windowed, Any]]:
        """Yield what `fetch_keys` does, the latest first."""
        yield from reversed(list(self.fetch_keys(first_key, last_key, first, last)))

    def backward_fetch(self, key: Any, first: int, last: int) -> Iterator[tuple[int, Any]]:
        """Yield what `fetch` does, the latest first."""
        yield from reversed(list(self.fetch(key, first, last)))

    def backward_fetch_all(self, first: int, last: int) -> Iterator[tuple[Windowed, Any]]:
        """Yield what `fetch_all` does, the latest first."""
        yield from reversed(list(self.fetch_all(first, last)))

    def backward_all(self) -> Iterator[tuple[Windowed, Any]]:
        """Yield all windows, the latest first."""
        yield from reversed(list(self.all()))

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        """Yield all windows, by time and key."""
        return self.fetch_all(0, 2**62)

    def flush(self) -> None:
        """Write what has changed."""
        self._lists.forget()
        if self._observed != self._saved:
            self._backend.put(_OBSERVED, LONG.pack(self._observed))
            self._saved = self._observed

    def _places(self) -> list[bytes]:
        return [place for place in self._lists.keys() if place != _OBSERVED]  # noqa: SIM118 - a method

    def _oldest(self) -> int:
        # as Kafka: a store for results on close keeps a window for one millisecond more
        more = 0 if self._spec.is_time_ordered else 1
        return self._observed - self._spec.retention_ms + more

    def _segment(self, time: int) -> int:
        return max(time, 0) // self._segment_ms

    @staticmethod
    def _place(segment: int, key: bytes) -> bytes:
        return LONG.pack(segment) + key

    def _delete_expired(self) -> None:
        oldest = self._segment(self._oldest())
        for place in self._places():
            if LONG.unpack(place[:8])[0] < oldest:
                self._lists.put(place, [])

    def _read(self, data: bytes) -> Any:
        if not self._spec.has_timestamps:
            return self._value.deserialize(data)
        return ValueAndTimestamp(self._value.deserialize(data[8:]), LONG.unpack(data[:8])[0])

    def _write(self, value: Any) -> bytes | None:
        if value is None or not self._spec.has_timestamps:
            return self._value.serialize(value)
        data = self._value.serialize(value.value)
        return None if data is None else LONG.pack(value.timestamp) + data
