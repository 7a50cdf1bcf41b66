"""The clock of the node, and timers on its event loop.

Kafka: org.apache.kafka.server.util.timer.SystemTimerReaper;
org.apache.kafka.common.utils.SystemTime.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from ottla.purgatory.timing_wheel import TimerTask, TimingWheel

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.server.system.turns import TurnWatch

TURN_BUDGET_S = 0.004
"""Time budget of one turn for tasks that are due; the others run in the next turns."""
ALIGNMENT_MS = 250
"""Recurring tasks that need no exact time run at multiples of this."""


def next_aligned_tick(now_ms: int, interval_ms: int) -> int:
    """Return the next time of a recurring task, aligned with that of all others.

    An idle node then wakes up once for all of them. Intervals below ALIGNMENT_MS are aligned only
    with equal ones.
    """
    grid_ms = ALIGNMENT_MS if interval_ms >= ALIGNMENT_MS else max(1, interval_ms)
    due_ms = now_ms + interval_ms
    return max(due_ms - due_ms % grid_ms, now_ms + 1)


class LoopTimer(TimingWheel):
    """A timing wheel that advances itself on its loop."""

    __slots__ = ("_clock", "_handle", "_is_advancing", "_loop", "_turns", "_wake_ms")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, turns: TurnWatch | None = None
    ) -> None:
        """Take the watch of turns: tasks are measured as parts of a turn."""
        super().__init__(clock.monotonic_ms())
        self._loop = loop
        self._turns = turns
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None
        self._wake_ms = 0
        self._is_advancing = False

    def add(self, deadline_ms: int, callback: Callable[[int], None]) -> TimerTask:
        """Add a task and make sure that the loop wakes up in time for it."""
        if self._turns is not None:
            callback = partial(self._turns.run_part, callback)
        task = super().add(deadline_ms, callback)
        if not self._is_advancing and (self._handle is None or deadline_ms < self._wake_ms):
            self._schedule(task.deadline_ms)
        return task

    def _schedule(self, wake_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._wake_ms = wake_ms
        delay_ms = max(0, wake_ms - self._clock.monotonic_ms())
        self._handle = self._loop.call_later(delay_ms / 1000, self._wake)

    def _wake(self) -> None:
        turns = self._turns
        self._fire_due(None if turns is None else turns.has_time_left(TURN_BUDGET_S))

    def _fire_due(self, has_time: Callable[[], bool] | None) -> None:
        self._handle = None
        self._is_advancing = True
        try:
            self.advance(self._clock.monotonic_ms(), has_time)
        finally:
            self._is_advancing = False
            deadline_ms = self.next_deadline()
            if deadline_ms is not None:
                self._schedule(deadline_ms)

    def catch_up(self) -> None:
        """Run all tasks that are due after the clock was moved."""
        if self._handle is not None:
            self._handle.cancel()
            self._fire_due(None)

    def close(self) -> None:
        """Cancel the next wake-up."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class SystemClock:
    """Wall time and monotonic time of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds that never step back."""
        return time.monotonic_ns() // 1_000_000
