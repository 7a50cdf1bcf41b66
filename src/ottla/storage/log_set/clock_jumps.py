"""Notices steps of the wall clock by comparing it with the monotonic one.

Kafka: none; a step there is time that went by, and retention deletes what it makes old.
"""

from __future__ import annotations

from ottla.storage.log.retention import ClockStep

SMALLEST_STEP_MS = 60_000
"""What is less is taken for the correction of a clock that runs badly, or for a loop held up."""


class ClockJumpDetector:
    """The step whose effect is not over; told the time now and then by its owner."""

    def __init__(self, now_ms: int, monotonic_ms: int) -> None:
        self.step: ClockStep | None = None
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def look(self, now_ms: int, monotonic_ms: int) -> bool:
        """Compare with the last look; True when the clock stepped ahead since then.

        Steps add up while the first one has an effect; a step back takes away from them.
        """
        gone_ms = monotonic_ms - self._monotonic_ms
        step_ms = now_ms - self._now_ms - gone_ms
        before_ms, self._now_ms, self._monotonic_ms = self._now_ms, now_ms, monotonic_ms
        if step_ms >= max(SMALLEST_STEP_MS, gone_ms):
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
        """Take note that the step has no effect any more."""
        self.step = None
