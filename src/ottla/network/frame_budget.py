"""Memory limit for all unfinished frames of a node.

Kafka: queued.max.request.bytes with org.apache.kafka.common.memory.SimpleMemoryPool. As in Kafka, a
connection without memory is not refused; it is not read from until other frames are complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


SMALL_WINDOW_BYTES: Final = 4096
"""Enough for the requests of clients that send little."""


class ReceiveWindow:
    """The shared buffer into which the connections of a listener receive."""

    __slots__ = ("_small", "_whole", "view")

    def __init__(self, scratch: bytearray) -> None:
        self._whole = self.view = memoryview(scratch)
        self._small = self._whole[:SMALL_WINDOW_BYTES]

    def resize(self, *, is_small: bool) -> None:
        """Let one read take 4 KiB at most, or as much as the buffer holds again."""
        self.view = self._small if is_small else self._whole


class FrameBudget:
    """Counts the buffers of frames that are not complete, and of bytes read ahead.

    What has been received already is counted whatever the sum (`count`); a buffer grows only while
    there is room, but the oldest may always grow. While memory is used up, connections receive
    into small windows: small requests are served, large ones wait before much of them is read.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._windows: list[ReceiveWindow] = []
        self._is_full = False

    def window(self, scratch: bytearray) -> ReceiveWindow:
        """Return a window of a buffer, small while memory is used up."""
        made = ReceiveWindow(scratch)
        made.resize(is_small=self._is_full)
        self._windows.append(made)
        return made

    def _resize(self) -> None:
        is_full = self.used_bytes > self.limit_bytes
        if is_full is not self._is_full:
            self._is_full = is_full
            for window in self._windows:
                window.resize(is_small=is_full)

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
        self._resize()
        return True

    def count(self, holder: Hashable, size_bytes: int) -> None:
        """Set the size of a holder's buffer, which is in memory already."""
        self.used_bytes += size_bytes - self._held.get(holder, 0)
        self._held[holder] = size_bytes
        self._resize()

    def measure(self) -> tuple[int, int]:
        """Return buffers and bytes, for the ledger."""
        return len(self._held), self.used_bytes

    def release(self, holder: Hashable) -> None:
        """Release a holder's memory: its frame is complete or its connection closed."""
        self._waiting.pop(holder, None)
        size_bytes = self._held.pop(holder, 0)
        if not size_bytes:
            return
        self.used_bytes -= size_bytes
        self._resize()
        waiting, self._waiting = self._waiting, {}
        for resume in waiting.values():
            resume()
