"""The events of a simulation: counted, hashed, and kept as text on request.

Kafka: none.
"""

from __future__ import annotations

import marshal
from collections import Counter
from hashlib import blake2b
from typing import Any

_EVENTS_AT_ONCE = 1024
"""So many are hashed at once."""
_WITHOUT_REFERENCES = 2
"""The version of marshal's format in which equal values are equal bytes."""


class Trace:
    """Equal digests mean equal events at equal times, in the same order."""

    def __init__(self, *, keep_lines: bool = False) -> None:
        """With keep_lines every event is kept as a line, to compare two runs."""
        self._lines: list[str] | None = [] if keep_lines else None
        self._counts: Counter[str] = Counter()
        self._hash = blake2b(digest_size=16)
        self._events: list[tuple[Any, ...]] = []
        """Not counted and hashed yet."""

    @property
    def counts(self) -> Counter[str]:
        """Events by kind: message, timer, file, job."""
        return self._counts + Counter(event[1] for event in self._events)

    @property
    def lines(self) -> list[str]:
        """Events as text, with keep_lines."""
        assert self._lines is not None, "keep_lines keeps them"
        return self._lines + _texts(self._events)

    @property
    def event_count(self) -> int:
        """Messages delivered, timers fired and file operations."""
        counts = self.counts
        return counts["message"] + counts["timer"] + counts["file"]

    def add(self, now_us: int, kind: str, *details: str | int) -> None:
        """Record an event."""
        self._events.append((now_us, kind, *details))
        if len(self._events) >= _EVENTS_AT_ONCE:
            self._take_events()

    def _take_events(self) -> None:
        events = self._events
        self._counts.update([event[1] for event in events])
        self._hash.update(marshal.dumps(events, _WITHOUT_REFERENCES))
        if self._lines is not None:
            self._lines += _texts(events)
        events.clear()

    def digest(self) -> str:
        """Return the hash of all events so far."""
        hashed = self._hash.copy()
        hashed.update(marshal.dumps(self._events, _WITHOUT_REFERENCES))
        return hashed.hexdigest()


def _texts(events: list[tuple[Any, ...]]) -> list[str]:
    return [" ".join(map(str, event)) for event in events]
