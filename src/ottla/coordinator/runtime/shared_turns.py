"""Shares the event loop among the partitions of a coordinator that work at the same time.

A broker that takes over many partitions at once would else load a slice of each in one turn; and
the checks of all partitions that were loaded together fall due together.

Kafka: none; its coordinators have threads of their own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.coordinator.runtime.loader import SLICE_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.purgatory.timing_wheel import TimingWheel

_STEP_COST_RECORDS: Final = 10
"""A step without records, which reads the log, counts as so many."""


class SharedTurns:
    """Runs the lasting work of a coordinator, so many records in a millisecond in all.

    Work is measured in records as a load replays them, some 20 µs each.
    """

    def __init__(self, timer: TimingWheel, clock: Clock) -> None:
        self._timer = timer
        self._clock = clock
        self._steps: deque[Callable[[], bool]] = deque()
        """Of work that waits for its turn."""
        self._records_left = SLICE_RECORDS
        self._since_ms = 0

    def add(self, step: Callable[[], bool]) -> None:
        """Call step() until it returns False, each time in another millisecond.

        The first time is now, unless enough was done in this millisecond.
        """
        self._begin_turn()
        if self._steps or self._records_left <= 0 or step():
            self._wait(step)

    def spent(self, record_count: int) -> None:
        """Count the records of a step."""
        self._records_left -= record_count + _STEP_COST_RECORDS

    def _begin_turn(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms != self._since_ms:
            self._since_ms = now_ms
            self._records_left = SLICE_RECORDS

    def _wait(self, step: Callable[[], bool]) -> None:
        self._steps.append(step)
        if len(self._steps) == 1:
            self._timer.add(self._clock.monotonic_ms() + 1, self._tick)

    def _tick(self, _now_ms: int) -> None:
        self._begin_turn()
        steps = self._steps
        for _ in range(len(steps)):
            if self._records_left <= 0:
                break
            step = steps[0]
            if step():
                steps.append(step)
            steps.popleft()
        if steps:
            self._timer.add(self._clock.monotonic_ms() + 1, self._tick)
