"""Detects jumps of the wall clock by comparing it with the monotonic clock.

Kafka: none; a jump counts as elapsed time there, and retention deletes accordingly.
"""

from __future__ import annotations

from ottla.storage.log.retention import ClockStep

SMALLEST_STEP_MS = 60_000
"""Smaller differences come from clock corrections or a delayed event loop."""


class ClockJumpDetector:
    """Tracks the jump whose effect is not over; its owner calls `look` periodically."""

    def __init__(self, now_ms: int, monotonic_ms: int) -> None:
        self.step: ClockStep | None = None
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def look(self, now_ms: int, monotonic_ms: int) -> bool:
        """Compare with the last call; True when the clock jumped ahead since then.

        Jumps add up while the first one has an effect; a jump back is subtracted.
        """
        elapsed_ms = monotonic_ms - self._monotonic_ms
        step_ms = now_ms - self._now_ms - elapsed_ms
        before_ms, self._now_ms, self._monotonic_ms = self._now_ms, now_ms, monotonic_ms
        if step_ms >= max(SMALLEST_STEP_MS, elapsed_ms):
            known = self.step
            size_ms = step_ms if known is None else step_ms + known.size_ms
            self.step = ClockStep(size_ms, before_ms + step_ms)
            return True
        if step_ms <= -SMALLEST_STEP_MS and self.step is not None:
            self._step_back(self.step, step_ms)
        return False

    def _step_back(self, known: ClockStep, step_ms: int) -> None:
        size_ms = known.size_ms + step_ms
        is_left = size_ms >= SMALLEST_STEP_MS
        self.step = ClockStep(size_ms, known.at_ms + step_ms) if is_left else None

    def forget(self) -> None:
        """Drop the jump: it has no effect any more."""
        self.step = None
