"""Session stores: values by key and session.

Sessions are kept in whole segments of time, as in Kafka: those that have just ended can still be
found by their end, though no longer by their key.

Kafka: org.apache.kafka.streams.state.SessionStore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.streams.serdes import LONG
from ottla.streams.stores.backend import MIN_SEGMENT_MS, EntryLists
from ottla.streams.stores.key_value import key_bytes
from ottla.streams.windows import Window, Windowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.streams.stores.backend import Backend
    from ottla.streams.stores.specs import StoreSpec

_OBSERVED: Final = b"t"
_KEY: Final = b"k"


class SessionStore:
    """Values by key and session; all sessions of a key are one list, by end and start."""

    def __init__(self, backend: Backend, spec: StoreSpec) -> None:
        assert spec.key is not None
        assert spec.value is not None
        self._key, self._value = spec.key, spec.value
        self._retention_ms = spec.retention_ms
        self._segment_ms = max(spec.retention_ms // 2, MIN_SEGMENT_MS)
        self._backend = backend
        self._lists = EntryLists(backend)
        self._observed: int = LONG.unpack(backend.get(_OBSERVED) or LONG.pack(-1))[0]
        self._saved = self._observed

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
        oldest = max(earliest_end, self._oldest())
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

    def flush(self) -> None:
        """Write what has changed."""
        self._lists.forget()
        if self._observed != self._saved:
            self._backend.put(_OBSERVED, LONG.pack(self._observed))
            self._saved = self._observed

    def _place(self, key: Any) -> bytes:
        return _KEY + key_bytes(self._key, key)

    def _places(self) -> list[bytes]:
        return [place for place in self._lists.keys() if place[:1] == _KEY]  # noqa: SIM118 - a method

    def _oldest(self) -> int:
        return self._observed - self._retention_ms + 1

    def _live_from(self, observed: int) -> int:
        """Return the start of the first segment that is kept."""
        return max(0, observed - self._retention_ms) // self._segment_ms * self._segment_ms

    def _delete_expired(self) -> None:
        oldest = self._live_from(self._observed)
        for place in self._places():
            entries = self._lists.get(place)
            if entries and entries[0][0] < oldest:
                self._lists.put(place, [one for one in entries if one[0] >= oldest])
