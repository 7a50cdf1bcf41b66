"""Distributions: Kafka's percentiles over recent values, and cumulative Prometheus buckets.

Kafka: com.yammer.metrics.core.Histogram, which samples 1,028 values with a bias to the last five
minutes; this implementation keeps the last 1,028.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import accumulate
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
    return [_quantile(ordered, one) for one in quantiles]


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
