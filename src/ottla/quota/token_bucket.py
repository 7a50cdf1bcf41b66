"""A token bucket that fills at the rate of the quota and may be overdrawn.

Kafka: org.apache.kafka.common.metrics.stats.TokenBucket (KIP-599).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.metrics.sampled_stat import SampleWindow


class TokenBucket:
    """Holds at most the amount that the quota allows in its whole window; starts full."""

    __slots__ = ("_filled_ms", "_tokens", "_window")

    def __init__(self, window: SampleWindow) -> None:
        self._window = window
        self._tokens: float | None = None
        self._filled_ms = 0

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Take tokens, or return them when count is negative; the result may be negative."""
        most = self._window.length_s * limit
        self._tokens = min(most, self.measure(limit, now_ms) - count)

    def measure(self, limit: float, now_ms: int) -> float:
        """Refill for the elapsed time and return the tokens; negative when overdrawn."""
        most = self._window.length_s * limit
        if self._tokens is None:
            self._tokens = most
        else:
            gained = limit * ((now_ms - self._filled_ms) / 1000)
            self._tokens = min(most, self._tokens + gained)
        self._filled_ms = now_ms
        return self._tokens
