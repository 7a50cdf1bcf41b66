"""A request that waits for a condition or for its deadline, whichever comes first.

Kafka: org.apache.kafka.server.purgatory.DelayedOperation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

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

    @abstractmethod
    def try_complete(self) -> bool:
        """Call `force_complete` and return its answer if the condition holds, else False."""

    @abstractmethod
    def on_complete(self) -> None:
        """Answer; called exactly once, for every way of completing."""

    def on_expiration(self) -> None:
        """React to the deadline having completed it; runs after `on_complete`."""
        return

    def force_complete(self) -> bool:
        """Complete now; False when it was complete before."""
        if self.is_completed:
            return False
        self.is_completed = True
        if self._task is not None:
            self._task.cancel()
        if self._forget is not None:
            self._forget()
        self.on_complete()
        return True

    def watched(self, task: TimerTask, forget: Callable[[], None]) -> None:
        """Note the deadline's task and how to leave the purgatory; called by the purgatory."""
        self._task = task
        self._forget = forget

    def expire(self, _now_ms: int) -> None:
        """Complete because the deadline has passed; called by the timer."""
        if self.force_complete():
            self.on_expiration()
