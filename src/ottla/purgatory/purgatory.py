"""Holds delayed operations, watched by the keys whose change may complete them.

Kafka: org.apache.kafka.server.purgatory.DelayedOperationPurgatory. There a completed operation
stays in its watch lists until it is purged; here it leaves them on completion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.purgatory.delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from ottla.purgatory.timing_wheel import TimingWheel

D = TypeVar("D", bound=DelayedOperation)


class Purgatory(Generic[D]):
    """Operations by key; one purgatory for each kind of operation (produce, fetch, …)."""

    def __init__(self, name: str, timer: TimingWheel) -> None:
        self.name = name
        self._timer = timer
        self.watchers: dict[Hashable, dict[D, None]] = {}
        """The operations by key; while it is empty, `check_and_complete` finds nothing."""
        self._delayed_count = 0

    @property
    def delayed_count(self) -> int:
        """Waiting operations (metric NumDelayedOperations)."""
        return self._delayed_count

    @property
    def watched_count(self) -> int:
        """Pairs of operation and key (metric PurgatorySize)."""
        return sum(map(len, self.watchers.values()))

    def try_complete_else_watch(self, operation: D, keys: Iterable[Hashable]) -> bool:
        """Try once; if it cannot complete, watch it by keys until it completes or expires."""
        if operation.is_completed or operation.try_complete():
            return True
        for key in keys:
            self.watch_also(operation, key)
        self._delayed_count += 1
        task = self._timer.add(operation.deadline_ms, operation.expire)
        operation.watched(task, lambda: self._forget(operation))
        return False

    def watch_also(self, operation: D, key: Hashable) -> None:
        """Watch an operation that is not complete by one more key."""
        operation.keys[key] = None
        watchers = self.watchers.get(key)
        if watchers is None:
            self.watchers[key] = {operation: None}
        else:
            watchers[operation] = None

    def check_and_complete(self, key: Hashable) -> int:
        """Try all operations that watch key, oldest first; return how many completed."""
        watchers = self.watchers.get(key)
        if not watchers:
            return 0
        completed = 0
        for operation in tuple(watchers):
            if not operation.is_completed and operation.try_complete():
                completed += 1
        return completed

    def complete_watchers(self, key: Hashable) -> int:
        """Complete all operations that watch key, which no longer exists; return how many."""
        return sum(one.force_complete() for one in tuple(self.watchers.get(key, ())))

    def complete_all(self) -> int:
        """Complete all waiting operations, at shutdown; return how many."""
        waiting = {op: None for watchers in self.watchers.values() for op in watchers}
        return sum(operation.force_complete() for operation in waiting)

    def stalls(self) -> Iterator[str]:
        """Yield waiting operations that nothing ends: no timer of a deadline runs."""
        waiting = {op: None for watchers in self.watchers.values() for op in watchers}
        for operation in waiting:
            if not operation.is_awaited:
                yield f"{self.name}: {operation!r} waits for no deadline"

    def _forget(self, operation: D) -> None:
        self._delayed_count -= 1
        for key in operation.keys:
            watchers = self.watchers.get(key)
            if watchers is not None:
                watchers.pop(operation, None)
                if not watchers:
                    del self.watchers[key]
