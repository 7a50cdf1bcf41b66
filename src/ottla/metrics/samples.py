"""Distributions (Kafka's percentiles, cumulative Prometheus buckets) and moving averages.

Kafka: com.yammer.metrics.core.Histogram, which samples 1,028 values with a bias to the last five
minutes; this implementation keeps the last 1,028; com.yammer.metrics.core.Meter,
com.yammer.metrics.stats.EWMA.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import accumulate
from math import exp
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RECENT_COUNT = 1028
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class Recent:
    """The last values, with their count and sum over all time."""

    __slots__ = ("_size", "count", "total", "values")

    def __init__(self, size: int = RECENT_COUNT) -> None:
        self._size = size
        self.values: deque[float] = deque(maxlen=size)
        self.count = 0
        self.total = 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self.values.append(value)
        self.count += 1
        self.total += value

    def extend(self, values: Sequence[float]) -> None:
        """Add several values."""
        self.values.extend(values[-self._size :])
        self.count += len(values)
        self.total += sum(values)

    def quantiles(self, quantiles: Sequence[float] = QUANTILES) -> list[float]:
        """Return percentiles of the kept values; zeros when there are none."""
        return quantiles_of(self.values, quantiles)


def quantiles_of(values: Iterable[float], quantiles: Sequence[float] = QUANTILES) -> list[float]:
    """Return percentiles as Yammer interpolates them; zeros when there are no values."""
    ordered = sorted(values)
    return [_quantile(ordered, quantile) for quantile in quantiles]


def _quantile(ordered: Sequence[float], quantile: float) -> float:
    if not ordered:
        return 0.0
    place = quantile * (len(ordered) + 1)
    if place < 1:
        return ordered[0]
    if place >= len(ordered):
        return ordered[-1]
    below = int(place)
    lower, upper = ordered[below - 1], ordered[below]
    return lower + (place - below) * (upper - lower)


class Buckets:
    """A histogram with fixed upper bounds."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[int]:
        """Return the number of values at or below each bound; the last entry counts all."""
        return list(accumulate(self._counts))


TICK_S = 5.0
"""Sampling interval of the averages, as in Kafka."""


class Ewma:
    """An exponentially weighted moving average over `minutes`."""

    __slots__ = ("_alpha", "rate")

    def __init__(self, minutes: float) -> None:
        self._alpha = 1 - exp(-TICK_S / 60 / minutes)
        self.rate: float | None = None
        """The average per second; None before the first sample."""

    def tick(self, sample: float) -> None:
        """Add the rate of one interval of TICK_S seconds; the first one has full weight."""
        if self.rate is None:
            self.rate = sample
        else:
            self.rate += self._alpha * (sample - self.rate)


class Meter:
    """The rates of one counter; call `update` at least every few seconds."""

    __slots__ = ("_averages", "_start_s", "_start_total", "_tick_s", "_tick_total", "mean_rate")

    def __init__(self, now_s: float, total: float = 0) -> None:
        self._averages = (Ewma(1), Ewma(5), Ewma(15))
        self._start_s = self._tick_s = now_s
        self._start_total = self._tick_total = total
        self.mean_rate = 0.0

    def update(self, total: float, now_s: float) -> None:
        """Sample the counter; the increase since the last tick counts in the first tick due."""
        elapsed_s = now_s - self._start_s
        if elapsed_s > 0:
            self.mean_rate = (total - self._start_total) / elapsed_s
        ticks = int((now_s - self._tick_s) / TICK_S)
        if ticks <= 0:
            return
        sample = (total - self._tick_total) / TICK_S
        for average in self._averages:
            average.tick(sample)
            for _ in range(min(ticks - 1, 1000)):  # the old rate has decayed to zero by then
                average.tick(0.0)
        self._tick_s += ticks * TICK_S
        self._tick_total = total

    @property
    def one_minute_rate(self) -> float:
        """The average per second over about one minute; 0 before the first tick."""
        return self._averages[0].rate or 0.0

    @property
    def five_minute_rate(self) -> float:
        """The average per second over about five minutes."""
        return self._averages[1].rate or 0.0

    @property
    def fifteen_minute_rate(self) -> float:
        """The average per second over about fifteen minutes."""
        return self._averages[2].rate or 0.0
