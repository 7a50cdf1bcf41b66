"""Acknowledgements of acks=all that wait for the high watermark of one partition.

Kafka: kafka.server.DelayedProduce.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.errors import ErrorCode


class ReplicationWait(Protocol):
    """One waiting request, with the partitions whose acknowledgements it needs."""

    @property
    def is_over(self) -> bool:
        """Whether the request is complete."""

    def acknowledged(self, position: int, code: ErrorCode) -> None:
        """Take the result for the partition at this position of the request."""


_Entry = tuple[int, int, ReplicationWait, int]
"""Required offset, a sequence number for equal offsets, the waiter, and its position."""


class AcknowledgementQueue:
    """A queue ordered by offset; of equal offsets the older one comes first."""

    __slots__ = ("_count", "_entries", "completed_together")

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._count = 0
        self.completed_together = 0
        """Appends that the last advance of the high watermark has acknowledged."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, required_offset: int, wait: ReplicationWait, position: int) -> None:
        """Wait until everything below an offset is replicated."""
        entries = self._entries
        self._count += 1
        entry = (required_offset, self._count, wait, position)
        if entries and entries[-1][0] > required_offset:  # a repeated batch
            insort(entries, entry)
        else:
            entries.append(entry)

    def complete(self, high_watermark: int, code: ErrorCode) -> None:
        """Acknowledge the appends below the high watermark."""
        entries = self._entries
        waiting = len(entries)
        while entries and entries[0][0] <= high_watermark:
            _, _, wait, position = entries.popleft()
            wait.acknowledged(position, code)
        self.completed_together = waiting - len(entries)

    def fail(self, code: ErrorCode) -> None:
        """End all waits: the partition is no longer led here in the epoch of the append."""
        entries, self._entries = self._entries, deque()
        for _, _, wait, position in entries:
            wait.acknowledged(position, code)

    def forget_expired(self) -> None:
        """Drop the oldest entries whose requests are answered."""
        entries = self._entries
        while entries and entries[0][2].is_over:
            entries.popleft()
