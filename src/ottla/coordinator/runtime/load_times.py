"""How long the partitions of a coordinator took to load.

Kafka: the sensors partition-load-time-avg and -max of CoordinatorRuntimeMetricsImpl.
"""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_MS: Final = 30_000


class LoadTimes:
    """The durations of the last 30 seconds."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, int]] = deque()
        """When a partition was loaded, and how long that took, in milliseconds."""

    def add(self, duration_ms: int, now_ms: int) -> None:
        """Take a partition's duration."""
        self._recent.append((now_ms, duration_ms))
        self._forget_old(now_ms)

    def figures(self, now_ms: int) -> tuple[float, int]:
        """Return average and maximum; zeros when nothing was loaded lately."""
        self._forget_old(now_ms)
        durations = [duration_ms for _, duration_ms in self._recent]
        if not durations:
            return 0.0, 0
        return sum(durations) / len(durations), max(durations)

    def _forget_old(self, now_ms: int) -> None:
        while self._recent and self._recent[0][0] <= now_ms - WINDOW_MS:
            self._recent.popleft()
