"""Sampled client metrics: rates, averages and extremes over the last minute.

Kafka: org.apache.kafka.common.metrics.stats.{SampledStat, Rate, Avg, Max, CumulativeSum}.

A window holds `metrics.num.samples` samples of `metrics.sample.window.ms` each; the oldest is
dropped when it expires. One window provides the rate, sum, mean and extremes of a quantity. It is
updated once per request or batch, never per record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

NOT_A_NUMBER = float("nan")


class MetricName(NamedTuple):
    """The name of a metric: Kafka's group and name, and tags such as the client id."""

    group: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        tags = ", ".join(f"{key}={value}" for key, value in self.tags)
        return f"{self.group}:{self.name}:{{{tags}}}"


class _Sample:
    __slots__ = ("count", "highest", "lowest", "start_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.count = 0
        self.total = 0.0
        self.highest = float("-inf")
        self.lowest = float("inf")


class Window:
    """One quantity: since the start (`count`, `total`) and over the current samples."""

    __slots__ = ("_current", "_samples", "_samples_kept", "_width_ms", "count", "total")

    def __init__(self, samples_kept: int, width_ms: int) -> None:
        self.count = 0
        self.total = 0.0
        self._samples_kept = samples_kept
        self._width_ms = max(width_ms, 1)
        self._samples: list[_Sample] = []
        self._current: _Sample | None = None

    def record(self, value: float, now_ms: int) -> None:
        """Record one value."""
        sample = self._current
        if sample is None or now_ms - sample.start_ms >= self._width_ms:
            sample = self._current = _Sample(now_ms)
            self._samples = [*self._fresh(now_ms), sample][-self._samples_kept :]
        sample.count += 1
        sample.total += value
        sample.highest = max(sample.highest, value)
        sample.lowest = min(sample.lowest, value)
        self.count += 1
        self.total += value

    def _fresh(self, now_ms: int) -> list[_Sample]:
        oldest_ms = now_ms - self._samples_kept * self._width_ms
        return [sample for sample in self._samples if sample.start_ms > oldest_ms]

    def _seconds(self, samples: list[_Sample], now_ms: int) -> float:
        """Return the time that the samples cover; at least all but one in full, as in Kafka."""
        elapsed_ms = now_ms - samples[0].start_ms
        missing = self._samples_kept - 1 - elapsed_ms // self._width_ms
        return max(elapsed_ms + max(missing, 0) * self._width_ms, 1) / 1000

    def rate(self, now_ms: int) -> float:
        """Return the sum of the values per second."""
        samples = self._fresh(now_ms)
        if not samples:
            return 0.0
        return sum(one.total for one in samples) / self._seconds(samples, now_ms)

    def frequency(self, now_ms: int) -> float:
        """Return the number of values per second."""
        samples = self._fresh(now_ms)
        if not samples:
            return 0.0
        return sum(one.count for one in samples) / self._seconds(samples, now_ms)

    def mean(self, now_ms: int) -> float:
        """Return the mean, NaN without values."""
        samples = self._fresh(now_ms)
        count = sum(one.count for one in samples)
        return sum(one.total for one in samples) / count if count else NOT_A_NUMBER

    def highest(self, now_ms: int) -> float:
        """Return the largest value, NaN without values."""
        return max((one.highest for one in self._fresh(now_ms)), default=NOT_A_NUMBER)

    def lowest(self, now_ms: int) -> float:
        """Return the smallest value, NaN without values."""
        return min((one.lowest for one in self._fresh(now_ms)), default=NOT_A_NUMBER)

    def sum_of_all(self, _now_ms: int) -> float:
        """Return the sum since the client's start."""
        return float(self.total)

    def count_of_all(self, _now_ms: int) -> float:
        """Return the number of values since the client's start."""
        return float(self.count)


def metered(name: str) -> dict[str, Callable[[Window, int], float]]:
    """Return the metrics of a window's sums: `name-rate` and `name-total`."""
    return {f"{name}-rate": Window.rate, f"{name}-total": Window.sum_of_all}


def counted(name: str) -> dict[str, Callable[[Window, int], float]]:
    """Return the metrics of a window's counts: `name-rate` and `name-total`."""
    return {f"{name}-rate": Window.frequency, f"{name}-total": Window.count_of_all}


def sized(name: str) -> dict[str, Callable[[Window, int], float]]:
    """Return the metrics of a window's mean and maximum: `name-avg` and `name-max`."""
    return {f"{name}-avg": Window.mean, f"{name}-max": Window.highest}
