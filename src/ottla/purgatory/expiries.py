"""Ends what waits for too long, where nearly all is over long before: cheaper than timers.

What waits equally long expires in the order of its beginning: one timer for the first of each
such queue is enough. What is over leaves the queue with the next that is added.

Kafka: the timer of org.apache.kafka.server.purgatory.DelayedOperationPurgatory. Hot path:
benchmarks/against_kafka/replicated.py.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.purgatory.timing_wheel import TimingWheel


class Expiring(Protocol):
    """What waits until a deadline on the timer's clock."""

    deadline_ms: int
    is_over: bool
    """Whether it waits no more."""

    def expire(self) -> None:
        """End the wait: the deadline has passed."""


class Expiries:
    """All that waits, by how long it waits at most."""

    def __init__(self, timer: TimingWheel) -> None:
        self._timer = timer
        self._queues: dict[int, deque[Expiring]] = {}

    def __len__(self) -> int:
        return sum(not one.is_over for queue in self._queues.values() for one in queue)

    def add(self, timeout_ms: int, waiting: Expiring) -> None:
        """Expire it at its deadline, which is timeout_ms from now."""
        queue = self._queues.get(timeout_ms)
        if queue is None:
            self._queues[timeout_ms] = deque((waiting,))
            self._watch(timeout_ms, waiting.deadline_ms)
            return
        while queue and queue[0].is_over:
            queue.popleft()
        queue.append(waiting)

    def _watch(self, timeout_ms: int, deadline_ms: int) -> None:
        self._timer.add(deadline_ms, lambda now_ms: self._expire(timeout_ms, now_ms))

    def _expire(self, timeout_ms: int, now_ms: int) -> None:
        queue = self._queues[timeout_ms]
        while queue and (queue[0].is_over or queue[0].deadline_ms <= now_ms):
            first = queue.popleft()
            if not first.is_over:
                first.expire()
        if queue:
            self._watch(timeout_ms, queue[0].deadline_ms)
        else:
            del self._queues[timeout_ms]
