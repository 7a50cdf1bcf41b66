"""Rates of a counter: Kafka's one, five and fifteen minute averages, and the mean.

Counting is only an integer addition by the caller; `update` samples the counter periodically.

Kafka: com.yammer.metrics.core.Meter, com.yammer.metrics.stats.EWMA.
"""

from __future__ import annotations

from math import exp

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
