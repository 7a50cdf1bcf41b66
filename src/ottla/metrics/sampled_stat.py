"""Sums, counts and extremes over a sliding window of samples.

Hot path: `record`; compiled with `sampled_stat.pxd`, runs uncompiled too. benchmarks/clients.py.
A client records about twenty values per request.

Kafka: org.apache.kafka.common.metrics.stats.{SampledStat, Rate, WindowedSum}.

The window slides by whole samples. A new rate is measured as if its preceding samples had been
empty, so that one large value does not exceed a limit at once.
"""

from __future__ import annotations

from typing import NamedTuple


class SampleWindow(NamedTuple):
    """The number of samples, including the current one, and the length of one."""

    samples: int
    sample_ms: int

    @property
    def length_s(self) -> float:
        """The whole window in seconds."""
        return self.samples * self.sample_ms / 1000


class Sample:
    """The values recorded during one interval."""

    __slots__ = ("count", "highest", "last_ms", "lowest", "start_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        """Start an empty sample."""
        self.count = 0
        self.total = 0.0
        self.highest = float("-inf")
        self.lowest = float("inf")
        self.start_ms = now_ms
        self.last_ms = now_ms


class SampledStat:
    """Records values: since the start (`count`, `total`) and over the window that ends now."""

    __slots__ = (
        "_current",
        "_sample",
        "_sample_count",
        "_sample_ms",
        "_samples",
        "count",
        "total",
    )

    def __init__(self, window: SampleWindow) -> None:
        self._sample_count, self._sample_ms = window
        self._samples: list[Sample] = []
        self._current = -1
        self._sample: Sample | None = None
        self.count = 0
        self.total = 0.0

    def record(self, value: float, now_ms: int) -> None:
        """Add a value; a negative one subtracts from the sum."""
        self.count += 1
        self.total += value
        sample = self._sample
        if sample is None or now_ms - sample.start_ms >= self._sample_ms:
            sample = self._next_sample(now_ms)
        sample.count += 1
        sample.total += value
        sample.last_ms = now_ms
        if value > sample.highest:  # noqa: PLR1730 - `max` costs a call
            sample.highest = value
        if value < sample.lowest:  # noqa: PLR1730 - as above
            sample.lowest = value

    def _next_sample(self, now_ms: int) -> Sample:
        self._current = (self._current + 1) % (self._sample_count + 1)
        if self._current >= len(self._samples):
            self._samples.append(Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        self._sample = self._samples[self._current]
        return self._sample

    def rate(self, now_ms: int) -> float:
        """Return the sum of the values per second."""
        self._forget_old(now_ms)
        total = 0.0
        for sample in self._samples:
            total += sample.total
        return total / (self.window_ms(now_ms) / 1000.0)  # a float: C divides integers

    def frequency(self, now_ms: int) -> float:
        """Return the number of values per second."""
        self._forget_old(now_ms)
        count = sum(sample.count for sample in self._samples)
        return count / (self.window_ms(now_ms) / 1000.0)

    def window_ms(self, now_ms: int) -> int:
        """Return the measured time, at least all samples but one."""
        self._forget_old(now_ms)
        oldest_ms = now_ms
        for sample in self._samples:
            if sample.start_ms < oldest_ms:  # noqa: PLR1730 - as above
                oldest_ms = sample.start_ms
        elapsed_ms = now_ms - oldest_ms
        missing = self._sample_count - 1 - elapsed_ms // self._sample_ms
        if missing > 0:
            elapsed_ms += missing * self._sample_ms
        return max(1, elapsed_ms)

    def recorded(self, now_ms: int) -> list[Sample]:
        """Return the samples of the window that have values."""
        self._forget_old(now_ms)
        return [sample for sample in self._samples if sample.count]

    def _forget_old(self, now_ms: int) -> None:
        kept_ms = self._sample_count * self._sample_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= kept_ms:
                sample.reset(now_ms)
