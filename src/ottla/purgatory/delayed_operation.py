"""A request that waits for a condition or for its deadline, whichever comes first.

Kafka: org.apache.kafka.server.purgatory.DelayedOperation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ottla.purgatory.timing_wheel import TimerTask


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
