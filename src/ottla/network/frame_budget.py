"""Memory limit for all unfinished frames of a node.

Kafka: queued.max.request.bytes with org.apache.kafka.common.memory.SimpleMemoryPool. As in Kafka, a
connection without memory is not refused; it is not read from until other frames are complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class FrameBudget:
    """Counts the buffers that have grown beyond their first size; the oldest may always grow."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, Callable[[], None]] = {}

    def grow(self, holder: Hashable, size_bytes: int, resume: Callable[[], None]) -> bool:
        """Replace the holder's buffer by one of this size; return False when memory is used up.

        In that case `resume` is called once, when memory is released. The oldest holder always
        succeeds, so that half-read frames never all wait for each other.
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
        """Release a holder's memory: its frame is complete or its connection closed."""
        self._waiting.pop(holder, None)
        size_bytes = self._held.pop(holder, 0)
        if not size_bytes:
            return
        self.used_bytes -= size_bytes
        waiting, self._waiting = self._waiting, {}
        for resume in waiting.values():
            resume()
