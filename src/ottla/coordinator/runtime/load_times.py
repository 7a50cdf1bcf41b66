"""Durations of the last 30 seconds: how long partitions took to load, or writes to commit.

Kafka: the sensors with Avg, Max and Meter of CoordinatorRuntimeMetricsImpl and
ShareCoordinatorMetrics.
"""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_MS: Final = 30_000
_MAX_RECENT: Final = 10_000
"""Durations that are kept; of more than these in 30 seconds the newest count."""


class LoadTimes:
    """The durations of the last 30 seconds, and how many there were in all."""

    def __init__(self) -> None:
        self.count = 0
        self._recent: deque[tuple[int, int]] = deque(maxlen=_MAX_RECENT)
        """When it ended, and how long it took, in milliseconds."""

    def add(self, duration_ms: int, now_ms: int) -> None:
        """Add a duration that has ended now."""
        self.count += 1
        self._recent.append((now_ms, duration_ms))
        self._forget_old(now_ms)

    def figures(self, now_ms: int) -> tuple[float, int]:
        """Return average and maximum; zeros without durations in the window."""
        self._forget_old(now_ms)
        durations = [duration_ms for _, duration_ms in self._recent]
        if not durations:
            return 0.0, 0
        return sum(durations) / len(durations), max(durations)

    def _forget_old(self, now_ms: int) -> None:
        while self._recent and self._recent[0][0] <= now_ms - WINDOW_MS:
            self._recent.popleft()
