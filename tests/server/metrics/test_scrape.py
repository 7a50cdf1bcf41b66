"""A scrape in turns: where a source may be left, the loop goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.purgatory.work import Worker
from ottla.server.metrics.node import SERIES_AT_ONCE, NodeMetrics

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_scrape_is_left_wherever_its_sources_allow_it() -> None:
    """Between two pauses a source works for about as long as a step may take: they never add up."""
    series: list[Any] = [f"series {number}" for number in range(2 * SERIES_AT_ONCE + 1)]
    stopwatch = SimpleNamespace(elapsed_s=lambda: 0.0, cpu_s=lambda: 0.0)
    metrics: Any = SimpleNamespace(
        stopwatch=stopwatch, collect=lambda: iter([None, series[0], None, *series[1:]]), _scrapes=0
    )
    turns: list[Callable[[], None]] = []
    pending = Worker(turns.append, max_steps=1).run(NodeMetrics._gather(metrics))
    steps = 1
    while not pending.done:
        turns.pop()()
        steps += 1
    assert pending.value == series
    assert steps == 6  # up to each pause, two full ones, the rest, the end
