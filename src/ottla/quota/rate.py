"""A rate over a sliding window of samples.

Kafka: org.apache.kafka.common.metrics.stats.{Rate, WindowedSum, SampledStat}.

The window slides by whole samples. A new rate is measured as if its preceding samples had been
empty, so that one large request does not exceed the limit at once.
"""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """The number of samples, including the current one, and the length of one."""

    samples: int
    sample_ms: int

    @property
    def length_s(self) -> float:
        """The whole window in seconds."""
        return self.samples * self.sample_ms / 1000


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        """Start an empty sample."""
        self.value = 0.0
        self.start_ms = now_ms
        self.last_ms = now_ms


class SampledRate:
    """Sums values and measures their rate per second."""

    __slots__ = ("_current", "_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add a value; a negative one subtracts."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.start_ms >= self._window.sample_ms:
            sample = self._next_sample(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def _next_sample(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % (self._window.samples + 1)
        if self._current >= len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def measure(self, now_ms: int) -> float:
        """Return the mean per second over the window that ends now."""
        self._forget_old(now_ms)
        total = sum(sample.value for sample in self._samples)
        return total / (self.window_ms(now_ms) / 1000)

    def window_ms(self, now_ms: int) -> int:
        """Return the measured time, at least all samples but one."""
        self._forget_old(now_ms)
        oldest_ms = min((sample.start_ms for sample in self._samples), default=now_ms)
        elapsed_ms = now_ms - oldest_ms
        samples, sample_ms = self._window
        missing = samples - 1 - elapsed_ms // sample_ms
        if missing > 0:
            elapsed_ms += missing * sample_ms
        return max(elapsed_ms, 1)

    def _forget_old(self, now_ms: int) -> None:
        kept_ms = self._window.samples * self._window.sample_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= kept_ms:
                sample.reset(now_ms)
