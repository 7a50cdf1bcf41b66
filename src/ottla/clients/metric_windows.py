"""Sampled client metrics: rates, averages and extremes over the last minute.

Kafka: org.apache.kafka.common.metrics.stats.{SampledStat, Rate, Avg, Max, CumulativeSum}.

A window holds `metrics.num.samples` samples of `metrics.sample.window.ms` each; the oldest is
dropped when it expires. One window provides the rate, sum, mean and extremes of a quantity. It is
updated once per request or batch, never per record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metrics.sampled_stat import SampledStat, SampleWindow

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


class MetricWindow(SampledStat):
    """One quantity: since the start (`count`, `total`) and over the current samples."""

    __slots__ = ()

    def __init__(self, samples: int, sample_ms: int) -> None:
        super().__init__(SampleWindow(samples, max(sample_ms, 1)))

    def mean(self, now_ms: int) -> float:
        """Return the mean, NaN without values."""
        samples = self.recorded(now_ms)
        count = sum(sample.count for sample in samples)
        return sum(sample.total for sample in samples) / count if count else NOT_A_NUMBER

    def highest(self, now_ms: int) -> float:
        """Return the largest value, NaN without values."""
        return max((sample.highest for sample in self.recorded(now_ms)), default=NOT_A_NUMBER)

    def lowest(self, now_ms: int) -> float:
        """Return the smallest value, NaN without values."""
        return min((sample.lowest for sample in self.recorded(now_ms)), default=NOT_A_NUMBER)

    def sum_of_all(self, _now_ms: int) -> float:
        """Return the sum since the client's start."""
        return float(self.total)

    def count_of_all(self, _now_ms: int) -> float:
        """Return the number of values since the client's start."""
        return float(self.count)


def metered(name: str) -> dict[str, Callable[[MetricWindow, int], float]]:
    """Return the metrics of a window's sums: `name-rate` and `name-total`."""
    return {f"{name}-rate": MetricWindow.rate, f"{name}-total": MetricWindow.sum_of_all}


def counted(name: str) -> dict[str, Callable[[MetricWindow, int], float]]:
    """Return the metrics of a window's counts: `name-rate` and `name-total`."""
    return {f"{name}-rate": MetricWindow.frequency, f"{name}-total": MetricWindow.count_of_all}


def sized(name: str) -> dict[str, Callable[[MetricWindow, int], float]]:
    """Return the metrics of a window's mean and maximum: `name-avg` and `name-max`."""
    return {f"{name}-avg": MetricWindow.mean, f"{name}-max": MetricWindow.highest}


REBALANCES: Final[dict[str, Callable[[MetricWindow, int], float]]] = {
    "rebalance-total": MetricWindow.count_of_all,
    "rebalance-rate-per-hour": lambda window, now_ms: window.frequency(now_ms) * 3600,
}
"""The metrics of a member's rebalances."""
