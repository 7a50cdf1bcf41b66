"""The events of a simulation: counted, hashed, and kept as text on request.

Kafka: none.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

_HASHED_LINES = 1024
"""Lines are hashed so many at once."""


class Trace:
    """Equal digests mean equal events at equal times, in the same order."""

    def __init__(self, *, keep_lines: bool = False) -> None:
        """With keep_lines every event is kept as a line, to compare two runs."""
        self.counts: Counter[str] = Counter()
        """Events by kind: message, timer, file, job."""
        self.lines: list[str] | None = [] if keep_lines else None
        self._hash = blake2b(digest_size=16)
        self._unhashed: list[str] = []

    @property
    def event_count(self) -> int:
        """Messages delivered, timers fired and file operations."""
        counts = self.counts
        return counts["message"] + counts["timer"] + counts["file"]

    def add(self, now_us: int, kind: str, text: str) -> None:
        """Record an event."""
        self.counts[kind] += 1
        line = f"{now_us} {kind} {text}\n"
        self._unhashed.append(line)
        if len(self._unhashed) >= _HASHED_LINES:
            self._hash_lines()
        if self.lines is not None:
            self.lines.append(line[:-1])

    def _hash_lines(self) -> None:
        self._hash.update("".join(self._unhashed).encode())
        self._unhashed.clear()

    def digest(self) -> str:
        """Return the hash of all events so far."""
        self._hash_lines()
        return self._hash.hexdigest()
