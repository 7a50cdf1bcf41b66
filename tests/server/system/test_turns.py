"""Tests of server.system.turns: which turns of a loop took long, and in what."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from ottla.server.system.timers import LoopTimer
from ottla.server.system.turns import TurnWatch, WatchedLoop, name_of
from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    import pytest


class Clock:
    """A clock that work moves on."""

    now_s = 0.0

    def elapsed_s(self) -> float:
        """Return the time."""
        return self.now_s

    def monotonic_ms(self) -> int:
        """Return the time in ms."""
        return int(self.now_s * 1000)

    now_ms = monotonic_ms

    def work(self, seconds: float) -> None:
        """Take time."""
        self.now_s += seconds

    def other_work(self, seconds: float) -> None:
        """Take time elsewhere."""
        self.now_s += seconds


def test_turns_are_counted_by_duration() -> None:
    """p50 and p99 are bounds of buckets; the slowest one has its name."""
    clock = Clock()
    watch = TurnWatch(clock.elapsed_s)
    for _ in range(98):
        watch.run(clock.work, 0.0001)
    watch.run(clock.work, 0.004)
    watch.run(clock.other_work, 0.03)
    assert (watch.quantile_s(0.5), watch.quantile_s(0.99)) == (0.001, 0.005)
    assert watch.slowest.name.endswith("Clock.other_work")
    assert round(watch.slowest.duration_s, 3) == 0.03
    assert sum(watch.counts) == 100


def test_a_turn_over_the_limit_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """One line with the duration and the callback."""
    clock = Clock()
    watch = TurnWatch(clock.elapsed_s)
    with caplog.at_level(logging.WARNING, "ottla.loop"):
        watch.run(clock.work, 0.099)
        watch.run(clock.work, 0.25)
    assert [one.message.split(" in ")[0] for one in caplog.records] == [
        "the event loop was busy for 250 ms"
    ]
    assert "Clock.work, or waited for a processor; " in caplog.text


def test_the_slowest_turn_is_forgotten_after_two_windows() -> None:
    """It is that of the last five to ten minutes."""
    clock = Clock()
    watch = TurnWatch(clock.elapsed_s)
    watch.run(clock.work, 0.05)
    clock.now_s = 400.0
    watch.run(clock.work, 0.002)
    assert round(watch.slowest.duration_s, 3) == 0.05
    clock.now_s = 800.0
    watch.run(clock.work, 0.002)
    assert round(watch.slowest.duration_s, 3) == 0.002


def test_a_timer_s_task_names_the_turn() -> None:
    """Not the timer, in whose turn it ran."""
    clock = Clock()
    watch = TurnWatch(clock.elapsed_s)
    loop = asyncio.new_event_loop()
    try:
        timer = LoopTimer(loop, clock, watch)
        timer.add(10, lambda _now_ms: clock.work(0.001))
        timer.add(10, lambda _now_ms: clock.other_work(0.2))
        clock.now_s = 0.02
        watch.run(timer.catch_up)
        timer.close()
    finally:
        loop.close()
    assert "test_a_timer_s_task_names_the_turn.<locals>.<lambda>" in watch.slowest.name


def test_tasks_due_together_are_spread_over_turns() -> None:
    """After some milliseconds the others wait, in their order, while the loop serves sockets."""
    clock = Clock()
    watch = TurnWatch(clock.elapsed_s)
    loop = asyncio.new_event_loop()
    fired: list[int] = []

    def work(number: int, _now_ms: int) -> None:
        fired.append(number)
        clock.work(0.003)

    try:
        timer = LoopTimer(loop, clock, watch)
        for number in range(5):
            timer.add(10 + number % 2, partial(work, number))
        clock.now_s = 0.02
        seen = []
        while len(fired) < 5:
            watch.run(timer._wake)
            seen.append(len(fired))
        timer.close()
    finally:
        loop.close()
    assert fired == [0, 2, 4, 1, 3]
    assert seen == [2, 4, 5]


def test_callbacks_have_names() -> None:
    """A partial has that of the function which it calls in the end."""
    assert name_of(partial(name_of, print)) == "builtins.print"
    assert name_of(name_of) == "server.system.turns.name_of"


def test_all_ways_into_a_loop_are_watched() -> None:
    """Timers, callbacks, threads and coroutines' futures."""
    clock = Clock()
    watch = TurnWatch(clock.elapsed_s)

    async def work() -> None:
        loop = WatchedLoop(asyncio.get_running_loop(), watch)
        done = loop.create_future()
        loop.call_soon(clock.work, 0.002)
        loop.call_later(0, clock.work, 0.003)
        loop.call_soon_threadsafe(clock.work, 0.006)
        loop.call_later(0.001, done.set_result, None)
        await done

    asyncio.run(work())
    assert watch.counts[1:4] == [1, 1, 1]


def test_a_node_watches_its_loop() -> None:
    """Without the metrics endpoint, too."""
    with Cluster() as cluster:
        count = cluster.run(lambda node: sum(node._resources.turns.counts))
    assert count > 0
