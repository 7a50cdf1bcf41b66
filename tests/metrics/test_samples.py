"""Percentiles and buckets."""

from __future__ import annotations

import pytest

from ottla.metrics.samples import Buckets, Recent, quantiles_of


@pytest.mark.parametrize(
    ("values", "quantile", "expected"),
    [
        ([], 0.5, 0.0),
        ([7.0], 0.999, 7.0),
        ([1.0, 2.0, 3.0], 0.5, 2.0),
        ([4.0, 1.0, 3.0, 2.0], 0.5, 2.5),
        (list(map(float, range(1, 101))), 0.99, 99.99),
        ([5.0, 9.0], 0.01, 5.0),
    ],
)
def test_percentiles_are_interpolated(
    values: list[float], quantile: float, expected: float
) -> None:
    """Percentiles are those that Yammer's snapshot gives."""
    assert quantiles_of(values, (quantile,)) == [pytest.approx(expected)]


def test_recent_forgets_values_but_not_their_count() -> None:
    """Only the last values make percentiles; count and total are those of all."""
    recent = Recent(size=2)
    for value in (100.0, 1.0, 3.0):
        recent.add(value)
    assert recent.quantiles((0.5,)) == [2.0]
    assert (recent.count, recent.total) == (3, 104.0)
    recent.extend([9.0, 5.0, 7.0])
    assert recent.quantiles((0.5,)) == [6.0]
    assert (recent.count, recent.total) == (6, 125.0)


def test_buckets_add_up() -> None:
    """A value on a bound belongs below it, one beyond all bounds to the last bucket only."""
    buckets = Buckets((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        buckets.add(value)
    assert buckets.cumulative() == [2, 3, 4]
    assert buckets.total == 12.0
