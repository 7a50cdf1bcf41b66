"""The exponential backoff: doubling, limit, jitter."""

from __future__ import annotations

from random import Random

import pytest

from ottla.purgatory.backoff import Backoff


@pytest.mark.parametrize(
    ("failures", "delay_ms"), [(0, 0), (1, 100), (2, 200), (4, 800), (5, 1000), (10_000, 1000)]
)
def test_the_delay_doubles_up_to_the_limit(failures: int, delay_ms: int) -> None:
    """Without a random source the delays are exact; no number of failures overflows."""
    assert Backoff(100, 1000).after(failures) == delay_ms


def test_an_initial_delay_above_the_limit_is_the_limit() -> None:
    """As in Kafka the backoff is then constant."""
    backoff = Backoff(5000, 1000)
    assert [backoff.after(failures) for failures in (1, 2, 3)] == [1000, 1000, 1000]


def test_jitter_spreads_the_delays() -> None:
    """By a fifth to both sides; never above the limit."""
    backoff = Backoff(100, 1000, Random(1))
    delays_ms = {backoff.after(2) for _ in range(1000)}
    assert min(delays_ms) in range(160, 165)
    assert max(delays_ms) in range(235, 241)
    assert max(backoff.after(9) for _ in range(1000)) == 1000
