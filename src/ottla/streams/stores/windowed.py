"""Window and session stores: values by key and time, for as long as the retention.

Kafka: org.apache.kafka.streams.state.{WindowStore, SessionStore}. Both keep whole segments of half
the retention. Windows lie in their segment, and a scan that a new segment makes due deletes those
that are over. Sessions that have just ended can still be found by their end, though no longer by
their key.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from ottla.streams.data.records import ValueAndTimestamp
from ottla.streams.data.serdes import LONG
from ottla.streams.data.windows import Window, Windowed
from ottla.streams.stores.backend import MIN_SEGMENT_MS
from ottla.streams.stores.key_value import TimedStore, key_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.streams.stores.backend import Backend, Entry
    from ottla.streams.stores.specs import StoreSpec


class WindowStore(TimedStore):
    """Values by key and start of a window; without duplicates the last one counts."""

    observed_key = b""
    """Keys of segments are longer."""

    def __init__(self, backend: Backend, spec: StoreSpec) -> None:
        super().__init__(backend, spec)
        self._spec = spec
        self._segment_ms = max(spec.retention_ms // 2, MIN_SEGMENT_MS)

    def put(self, key: Any, value: Any, start: int) -> None:
        """Set the value of a key's window; None removes it. Windows that are over are ignored."""
        before = self._observed
        self._observed = max(before, start)
        if start < self._oldest():
            return
        if self._segment(self._observed) != self._segment(before):
            self._delete_expired()
        place = LONG.pack(self._segment(start)) + key_bytes(self._key, key)
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
            entries = self._lists.get(LONG.pack(segment) + data)
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

    def _oldest(self) -> int:
        # as Kafka: a store for results on close keeps a window for one millisecond more
        more = 0 if self._spec.is_time_ordered else 1
        return self._observed - self._retention_ms + more

    def _segment(self, time: int) -> int:
        return max(time, 0) // self._segment_ms

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


class SessionStore(TimedStore):
    """Values by key and session; all sessions of a key are one list, by end and start."""

    def __init__(self, backend: Backend, spec: StoreSpec) -> None:
        super().__init__(backend, spec)
        self._segment_ms = max(spec.retention_ms // 2, MIN_SEGMENT_MS)

    def put(self, session: Windowed, value: Any) -> None:
        """Set the value of a session; None removes it. Sessions that are over are ignored."""
        start, end = session.window
        before = self._observed
        self._observed = max(before, end)
        if self._live_from(self._observed) != self._live_from(before):
            self._delete_expired()
        if end < self._live_from(self._observed):
            return
        place = self._place(session.key)
        entries = [one for one in self._lists.get(place) if one[:2] != (end, start)]
        data = self._value.serialize(value)
        if data is not None:
            entries.append((end, start, data))
        self._lists.put(place, sorted(entries))

    def remove(self, session: Windowed) -> None:
        """Remove a session."""
        self.put(session, None)

    def find_sessions(
        self, key: Any, earliest_end: int, latest_start: int
    ) -> Iterator[tuple[Windowed, Any]]:
        """Yield a key's sessions that overlap a span, by their end."""
        oldest = max(earliest_end, self._observed - self._retention_ms + 1)
        for end, start, value in list(self._lists.get(self._place(key))):
            if end >= oldest and start <= latest_start:
                yield Windowed(key, Window(start, end)), self._value.deserialize(value)

    def fetch(self, key: Any) -> Iterator[tuple[Windowed, Any]]:
        """Yield all sessions of a key."""
        return self.find_sessions(key, 0, 2**62)

    def fetch_keys(self, first_key: Any, last_key: Any) -> Iterator[tuple[Windowed, Any]]:
        """Yield the sessions of a range of keys by their bytes, both included; None is no limit."""
        return self.find_sessions_of_keys(first_key, last_key, 0, 2**62)

    def backward_fetch_keys(self, first_key: Any, last_key: Any) -> Iterator[tuple[Windowed, Any]]:
        """Yield what `fetch_keys` does, from the last key and session to the first."""
        yield from reversed(list(self.fetch_keys(first_key, last_key)))

    def find_sessions_of_keys(
        self, first_key: Any, last_key: Any, earliest_end: int, latest_start: int
    ) -> Iterator[tuple[Windowed, Any]]:
        """Yield the sessions of a range of keys that overlap a span, by key and end."""
        low = b"" if first_key is None else key_bytes(self._key, first_key)
        high = None if last_key is None else key_bytes(self._key, last_key)
        for place in self._places():
            if low <= place[1:] and (high is None or place[1:] <= high):
                key = self._key.deserialize(place[1:])
                yield from self.find_sessions(key, earliest_end, latest_start)

    def backward_find_sessions_of_keys(
        self, first_key: Any, last_key: Any, earliest_end: int, latest_start: int
    ) -> Iterator[tuple[Windowed, Any]]:
        """Yield what `find_sessions_of_keys` does, from the last to the first."""
        found = self.find_sessions_of_keys(first_key, last_key, earliest_end, latest_start)
        yield from reversed(list(found))

    def backward_fetch(self, key: Any) -> Iterator[tuple[Windowed, Any]]:
        """Yield all sessions of a key, the latest first."""
        yield from reversed(list(self.fetch(key)))

    def backward_find_sessions(
        self, key: Any, earliest_end: int, latest_start: int
    ) -> Iterator[tuple[Windowed, Any]]:
        """Yield what `find_sessions` does, the latest first."""
        yield from reversed(list(self.find_sessions(key, earliest_end, latest_start)))

    def fetch_session(self, key: Any, start: int, end: int) -> Any:
        """Return the value of a session, None without one."""
        for session, value in self.find_sessions(key, end, start):
            if session.window == (start, end):
                return value
        return None

    def ending_within(self, first: int, last: int) -> Iterator[tuple[Windowed, Any]]:
        """Yield the sessions of all keys that end within a span, by end, start and key."""
        first = max(first, self._live_from(self._observed))
        found = []
        for place in self._places():
            for end, start, value in self._lists.get(place):
                if first <= end <= last:
                    found.append((end, start, place, value))
        for end, start, place, value in sorted(found):
            key = self._key.deserialize(place[1:])
            yield Windowed(key, Window(start, end)), self._value.deserialize(value)

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        """Yield all sessions, by end."""
        return self.ending_within(0, 2**62)

    def _live_from(self, observed: int) -> int:
        """Return the start of the first segment that is kept."""
        return max(0, observed - self._retention_ms) // self._segment_ms * self._segment_ms

    def _delete_expired(self) -> None:
        oldest = self._live_from(self._observed)
        for place in self._places():
            entries = self._lists.get(place)
            if entries and entries[0][0] < oldest:
                self._lists.put(place, [entry for entry in entries if entry[0] >= oldest])
