"""Holds delayed operations, watched by the keys whose change may complete them.

Kafka: org.apache.kafka.server.purgatory.{DelayedOperationPurgatory, DelayedOperation}. There a
completed operation stays in its watch lists until it is purged; here it leaves them on completion.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from ottla.purgatory.timing_wheel import TimerTask, TimingWheel

D = TypeVar("D", bound="DelayedOperation")


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
        return sum(operation.force_complete() for operation in tuple(self.watchers.get(key, ())))

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


class DelayedOperation(ABC):
    """Completes exactly once, by `try_complete`, by `force_complete` or by expiry.

    deadline_ms is on the clock of the purgatory's timer.
    """

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.is_completed = False
        self._task: TimerTask | None = None
        self._forget: Callable[[], None] | None = None
        self.keys: dict[Hashable, None] = {}
        """The keys that it watches: a change of one may complete it."""

    @abstractmethod
    def try_complete(self) -> bool:
        """If the condition holds, return `force_complete()`, else False."""

    @abstractmethod
    def on_complete(self) -> None:
        """Send the response; called exactly once, however the operation completes."""

    def on_expiration(self) -> None:
        """React to completion by the deadline; called after `on_complete`."""
        return

    def force_complete(self) -> bool:
        """Complete now; return False when it is complete already."""
        if self.is_completed:
            return False
        self.is_completed = True
        task, forget = self._task, self._forget
        self._task = self._forget = None  # both refer to this operation
        if task is not None:
            task.cancel()
        if forget is not None:
            forget()
        self.on_complete()
        return True

    @property
    def is_awaited(self) -> bool:
        """Whether it is not complete and the timer of its deadline runs."""
        return not self.is_completed and self._task is not None and self._task.is_waiting

    def watched(self, task: TimerTask, forget: Callable[[], None]) -> None:
        """Set the deadline's task and the callback that ends the watch; called by the purgatory."""
        self._task = task
        self._forget = forget

    def expire(self, _now_ms: int) -> None:
        """Complete because the deadline has passed; called by the timer."""
        if self.force_complete():
            self.on_expiration()
