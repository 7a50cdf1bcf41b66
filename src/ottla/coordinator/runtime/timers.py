"""The named timers of one shard; each runs a shard operation.

Kafka: org.apache.kafka.coordinator.common.runtime.CoordinatorTimer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ottla.clock import Clock
    from ottla.coordinator.runtime.result import Result
    from ottla.purgatory.timing_wheel import TimerTask, TimingWheel

    Operation = Callable[[], Result[None]]


class ShardTimers:
    """Timers by key: scheduling a key again replaces its timer; all end with the shard."""

    def __init__(
        self,
        timer: TimingWheel,
        clock: Clock,
        run: Callable[[Operation, Callable[[Exception], None]], None],
    ) -> None:
        self._timer = timer
        self._clock = clock
        self._run = run
        self._tasks: dict[Hashable, TimerTask] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: object) -> bool:
        return key in self._tasks

    def schedule(
        self, key: Hashable, delay_ms: int, operation: Operation, *, retry_ms: int | None = None
    ) -> None:
        """Run operation after delay_ms; retry after retry_ms when its records cannot be written."""
        self.cancel(key)

        def fire(_now_ms: int) -> None:
            if self._tasks.get(key) is not task:
                return
            del self._tasks[key]
            self._run(operation, retry)

        def retry(_error: Exception) -> None:
            if retry_ms is not None and key not in self._tasks:
                self.schedule(key, retry_ms, operation, retry_ms=retry_ms)

        task = self._timer.add(self._clock.monotonic_ms() + max(0, delay_ms), fire)
        self._tasks[key] = task

    def postpone(self, key: Hashable, delay_ms: int) -> bool:
        """Run the operation of a timer later than now scheduled; whether that was possible."""
        task = self._tasks.get(key)
        due_ms = self._clock.monotonic_ms() + delay_ms
        return task is not None and self._timer.postpone(task, due_ms)

    def cancel(self, key: Hashable) -> None:
        """Cancel the timer of key, if any."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def cancel_all(self) -> None:
        """Cancel all timers."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
