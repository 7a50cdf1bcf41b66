"""What recurs in a node meets, so that an idle node wakes up seldom."""

from __future__ import annotations

import pytest

from ottla.server.system.timers import ALIGNMENT_MS, next_aligned_tick


@pytest.mark.parametrize("interval_ms", [250, 500, 1000, 1100, 2000, 300_000])
@pytest.mark.parametrize("now_ms", [0, 1, 249, 250, 251, 777, 10**9 + 3])
def test_intervals_end_on_a_common_grid(now_ms: int, interval_ms: int) -> None:
    """At most one step of the grid early, and then always at its multiples."""
    first_ms = next_aligned_tick(now_ms, interval_ms)
    assert first_ms % ALIGNMENT_MS == 0
    assert now_ms < first_ms
    assert now_ms + interval_ms - ALIGNMENT_MS < first_ms <= now_ms + interval_ms
    assert next_aligned_tick(first_ms + 1, interval_ms) - first_ms in (
        interval_ms,
        interval_ms - interval_ms % ALIGNMENT_MS,
    )


@pytest.mark.parametrize("interval_ms", [0, 1, 7, 100, 249])
def test_short_intervals_end_in_time_and_never_at_once(interval_ms: int) -> None:
    """They keep to multiples of their own; none of them holds the loop."""
    for now_ms in range(0, 1000, 13):
        due_ms = next_aligned_tick(now_ms, interval_ms)
        assert now_ms < due_ms <= now_ms + max(1, interval_ms)
