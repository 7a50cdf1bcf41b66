"""Rates of a running total: Kafka's one, five and fifteen minute averages, and the mean.

Nothing happens when something is counted: whoever counts adds to an integer, and `update` looks at
the integer now and then.

Kafka: com.yammer.metrics.core.Meter, com.yammer.metrics.stats.EWMA.
"""

from __future__ import annotations

from math import exp

TICK_S = 5.0
"""How often an average takes a new sample, as in Kafka."""


class Ewma:
    """An exponentially weighted moving average that forgets over `minutes`."""

    __slots__ = ("_alpha", "rate")

    def __init__(self, minutes: float) -> None:
        self._alpha = 1 - exp(-TICK_S / 60 / minutes)
        self.rate: float | None = None
        """What it averages, a second; None before the first sample."""

    def tick(self, sample: float) -> None:
        """Take the value of one interval of TICK_S seconds; the first one counts fully."""
        if self.rate is None:
            self.rate = sample
        else:
            self.rate += self._alpha * (sample - self.rate)


class Meter:
    """The rates of one total; `update` with the total and the time, at least every few seconds."""

    __slots__ = ("_averages", "_start_s", "_start_total", "_tick_s", "_tick_total", "mean_rate")

    def __init__(self, now_s: float, total: float = 0) -> None:
        self._averages = (Ewma(1), Ewma(5), Ewma(15))
        self._start_s = self._tick_s = now_s
        self._start_total = self._tick_total = total
        self.mean_rate = 0.0

    def update(self, total: float, now_s: float) -> None:
        """Take the total so far; what came since the last tick counts in the first tick due."""
        elapsed_s = now_s - self._start_s
        if elapsed_s > 0:
            self.mean_rate = (total - self._start_total) / elapsed_s
        ticks = int((now_s - self._tick_s) / TICK_S)
        if ticks <= 0:
            return
        sample = (total - self._tick_total) / TICK_S
        for average in self._averages:
            average.tick(sample)
            for _ in range(min(ticks - 1, 1000)):  # after that nothing is left of an old rate
                average.tick(0.0)
        self._tick_s += ticks * TICK_S
        self._tick_total = total

    @property
    def one_minute_rate(self) -> float:
        """The average a second of the last minute, roughly; 0 before the first tick."""
        return self._averages[0].rate or 0.0

    @property
    def five_minute_rate(self) -> float:
        """The average a second of the last five minutes, roughly."""
        return self._averages[1].rate or 0.0

    @property
    def fifteen_minute_rate(self) -> float:
        """The average a second of the last fifteen minutes, roughly."""
        return self._averages[2].rate or 0.0
