"""The named timers and long writes of one shard.

A shard may have hundreds of thousands of entries. Changes to all of them, such as removals of
expired offsets, are an iterator over lists of records: each list is written when the one before it
is committed, and requests are served in between. Kafka has threads for that.

Kafka: org.apache.kafka.coordinator.common.runtime.CoordinatorTimer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from ottla.coordinator.runtime.result import CoordinatorRecord, Result
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.timing_wheel import TimerTask

    Operation = Callable[[], Result[None]]

K = TypeVar("K")
RECORDS_AT_ONCE: Final = 100
"""Records that a sweep writes together: each takes about 20 µs to encode and to replay."""
EXAMINED_AS_A_RECORD: Final = 20
"""Entries that are examined in the time in which a record is written."""

Examine: TypeAlias = "Callable[[K], tuple[list[CoordinatorRecord], float]]"
"""Returns the records of a key, and what it cost to examine it, in records."""


class ShardTimers:
    """Timers by key: scheduling a key again replaces its timer; all end with the shard."""

    def __init__(
        self,
        loop: Loop,
        run: Callable[[Operation, Callable[[Exception], None]], None],
        begin_writes: Callable[[Iterator[list[CoordinatorRecord]]], Pending[None]],
    ) -> None:
        self._timer = loop.timer
        self._clock = loop.clock
        self._run = run
        self._begin_writes = begin_writes
        self._tasks: dict[Hashable, TimerTask] = {}
        self._writing: set[Hashable] = set()
        """The keys of writes that are under way."""

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: object) -> bool:
        return key in self._tasks or key in self._writing

    def write_all(self, key: Hashable, slices: Iterator[list[CoordinatorRecord]]) -> None:
        """Write lists of records one after the other, unless some of this key are under way.

        A list is computed in the turn in which it is appended, which is its alone: it is as much
        work as a hundred records. The first error ends all.
        """
        if key not in self._writing:
            self._writing.add(key)
            self._begin_writes(slices).on_done(lambda _done: self._writing.discard(key))

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


def sweep(keys: Iterable[K], examine: Examine[K]) -> Iterator[list[CoordinatorRecord]]:
    """Yield the records of all keys, some at a time; a key may have more than fit."""
    remaining = deque(keys)
    while remaining:
        records: list[CoordinatorRecord] = []
        cost = 0.0
        while remaining and cost < RECORDS_AT_ONCE:
            of_key, examined = examine(remaining[0])
            records += of_key[:RECORDS_AT_ONCE]
            cost += min(len(of_key), RECORDS_AT_ONCE) + examined
            if len(of_key) < RECORDS_AT_ONCE:  # else the same key may have more
                remaining.popleft()
        yield records
