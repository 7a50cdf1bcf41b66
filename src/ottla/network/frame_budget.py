"""How much memory all unfinished frames of a node may take together.

Kafka: queued.max.request.bytes with org.apache.kafka.common.memory.SimpleMemoryPool. As there, who
finds no memory is not refused but not read from until others are done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class FrameBudget:
    """Counts the buffers that have grown beyond the first; the oldest may always grow."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, Callable[[], None]] = {}

    def grow(self, holder: Hashable, size_bytes: int, resume: Callable[[], None]) -> bool:
        """Take memory for a buffer of this size in place of the holder's; False when there is none.

        Then `resume` is called once, when some was given back. That the oldest holder always gets
        what it asks for keeps frames that are all half read from waiting for each other.
        """
        held = self._held
        extra = size_bytes - held.get(holder, 0)
        if self.used_bytes + extra > self.limit_bytes and next(iter(held), holder) is not holder:
            self._waiting[holder] = resume
            return False
        held[holder] = size_bytes
        self.used_bytes += extra
        return True

    def release(self, holder: Hashable) -> None:
        """Give back what a holder has, its frame being complete or its connection closed."""
        self._waiting.pop(holder, None)
        size_bytes = self._held.pop(holder, 0)
        if not size_bytes:
            return
        self.used_bytes -= size_bytes
        waiting, self._waiting = self._waiting, {}
        for resume in waiting.values():
            resume()
