"""The rates of a counter."""

from __future__ import annotations

from math import exp

import pytest

from ottla.metrics.samples import TICK_S, Ewma, Meter


def test_the_first_sample_counts_fully_and_later_ones_by_weight() -> None:
    """An average begins at its first sample and then moves by Kafka's weight."""
    average = Ewma(1)
    assert average.rate is None
    average.tick(10.0)
    assert average.rate == 10.0
    average.tick(0.0)
    assert average.rate == pytest.approx(10.0 * exp(-TICK_S / 60))


def test_a_steady_rate_is_shown_in_all_windows() -> None:
    """Ten a second for a quarter of an hour is ten a second in every window."""
    meter = Meter(now_s=100.0, total=7)
    for second in range(1, 901):
        meter.update(7 + 10 * second, 100.0 + second)
    assert meter.one_minute_rate == pytest.approx(10.0)
    assert meter.five_minute_rate == pytest.approx(10.0)
    assert meter.fifteen_minute_rate == pytest.approx(10.0)
    assert meter.mean_rate == pytest.approx(10.0)


def test_short_windows_forget_sooner() -> None:
    """After five idle minutes the one-minute rate is almost zero, the others are not."""
    meter = Meter(now_s=0.0)
    meter.update(50, 5.0)
    meter.update(50, 305.0)
    assert meter.one_minute_rate == pytest.approx(10.0 * exp(-5), rel=1e-6)
    assert meter.five_minute_rate == pytest.approx(10.0 * exp(-1), rel=1e-6)
    assert meter.fifteen_minute_rate == pytest.approx(10.0 * exp(-1 / 3), rel=1e-6)


def test_nothing_is_averaged_between_ticks() -> None:
    """An update within five seconds changes only the mean, and loses nothing."""
    meter = Meter(now_s=0.0)
    meter.update(10, 2.0)
    assert meter.one_minute_rate == 0.0
    assert meter.mean_rate == 5.0
    meter.update(20, 5.0)
    assert meter.one_minute_rate == 4.0
