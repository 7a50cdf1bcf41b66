"""FIFO timeouts: cheaper than a timer for each request where nearly all complete in time.

Requests with the same timeout expire in the order of their arrival, so a queue for each timeout
needs one timer, that of its first entry. Completed entries are removed when another is added.

Kafka: the timer of org.apache.kafka.server.purgatory.DelayedOperationPurgatory. Hot path:
benchmarks/against_kafka/replicated.py.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from ottla.purgatory.timing_wheel import TimingWheel


SWEEP_SIZE: Final = 64


class Expiring(Protocol):
    """A request with a deadline on the timer's clock."""

    deadline_ms: int
    is_over: bool
    """Whether it is complete."""

    def expire(self) -> None:
        """Complete it: the deadline has passed."""


class _Queue:
    """The requests with one timeout, in the order of their deadlines."""

    __slots__ = ("next_sweep_size", "waiting")

    def __init__(self, first: Expiring) -> None:
        self.waiting = deque((first,))
        self.next_sweep_size = SWEEP_SIZE

    def add(self, waiting: Expiring) -> None:
        """Append a request; remove completed ones, those in the middle once the queue doubles."""
        queue = self.waiting
        while queue and queue[0].is_over:
            queue.popleft()
        if len(queue) >= self.next_sweep_size:  # the first one still waits: later ones may not
            self.waiting = queue = deque([wait for wait in queue if not wait.is_over])
            self.next_sweep_size = max(SWEEP_SIZE, 2 * len(queue))
        queue.append(waiting)


class Expiries:
    """The waiting requests, by timeout."""

    def __init__(self, timer: TimingWheel) -> None:
        self._timer = timer
        self._queues: dict[int, _Queue] = {}

    def __len__(self) -> int:
        """Return how many entries are held, completed ones that were not removed yet included."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    def add(self, timeout_ms: int, waiting: Expiring) -> None:
        """Expire a request at its deadline, which is timeout_ms from now."""
        queue = self._queues.get(timeout_ms)
        if queue is None:
            self._queues[timeout_ms] = _Queue(waiting)
            self._watch(timeout_ms, waiting.deadline_ms)
        else:
            queue.add(waiting)

    def _watch(self, timeout_ms: int, deadline_ms: int) -> None:
        self._timer.add(deadline_ms, lambda now_ms: self._expire(timeout_ms, now_ms))

    def _expire(self, timeout_ms: int, now_ms: int) -> None:
        queue = self._queues[timeout_ms]
        while queue.waiting:  # looked up each time: `expire` may add others
            first = queue.waiting[0]
            if not first.is_over and first.deadline_ms > now_ms:
                break
            queue.waiting.popleft()
            if not first.is_over:
                first.expire()
        if queue.waiting:
            self._watch(timeout_ms, queue.waiting[0].deadline_ms)
        else:
            del self._queues[timeout_ms]
