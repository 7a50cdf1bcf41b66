"""Calls to remote storage: as many at a time as a setting says, and the rest waits.

A store may never answer. Such a call takes a thread until the process ends; it delays others of
its kind only when it has all their threads, and a stop waits for it for a limited time.

Kafka: RemoteLogManager.RLMScheduledThreadPool, RemoteStorageThreadPool.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.server.system.environment import WorkerPool

SLOW_MS: Final = 600_000
"""A call that takes longer is named once: 1 GiB at 2 MB/s."""
log = logging.getLogger("ottla.remote")


class _Call:
    """A call that waits or runs."""

    __slots__ = ("begin_ms", "done", "is_named", "job", "name")

    def __init__(self, job: Callable[[], Any], done: Callable[..., None], name: str) -> None:
        self.job = job
        self.done = done
        self.name = name
        self.begin_ms = 0
        self.is_named = False
        """Whether a line of the log says that it is slow."""


class RemoteCalls:
    """The calls of one kind; used on the loop alone."""

    def __init__(self, pool: WorkerPool, count: int, clock: Clock) -> None:
        """Run at most count calls at a time, in workers of a pool that has enough of them."""
        self.count = count
        self._pool = pool
        self._clock = clock
        self._waiting: deque[_Call] = deque()
        self._running: dict[_Call, None] = {}
        self._is_closed = False

    def run(self, job: Callable[[], Any], done: Callable[..., None], name: str = "a call") -> None:
        """Run the job in a worker, then done(result, error) on the loop; ignored once closed."""
        if not self._is_closed:
            self._waiting.append(_Call(job, done, name))
            self._start()

    def _start(self) -> None:
        while self._waiting and len(self._running) < self.count and not self._is_closed:
            call = self._waiting.popleft()
            call.begin_ms = self._clock.monotonic_ms()
            self._running[call] = None
            self._pool.run(call.job, partial(self._ended, call))

    def _ended(self, call: _Call, result: object, error: Exception | None) -> None:
        del self._running[call]
        self._start()
        call.done(result, error)

    def resize(self, count: int) -> None:
        """Let count calls run at a time; those that run already are not interrupted."""
        self.count = count
        self._start()

    def close(self) -> None:
        """Begin no call any longer; what waits is forgotten."""
        self._is_closed = True
        self._waiting.clear()

    @property
    def waiting_count(self) -> int:
        """Calls that wait for a worker."""
        return len(self._waiting)

    @property
    def idle_share(self) -> float:
        """The part of the workers that runs no call now; below 0 after a reduction, as in Kafka."""
        return 1 - len(self._running) / self.count

    @property
    def oldest_ms(self) -> int:
        """How long the call runs that began first; 0 without any."""
        begin_ms = next((call.begin_ms for call in self._running), None)
        return 0 if begin_ms is None else self._clock.monotonic_ms() - begin_ms

    def name_slow(self) -> None:
        """Name in the log each call that runs for too long, once."""
        now_ms = self._clock.monotonic_ms()
        for call in self._running:
            if now_ms - call.begin_ms < SLOW_MS:
                return  # those after it began later
            if not call.is_named:
                call.is_named = True
                log.warning(
                    "%s has not ended for %d minutes: remote storage does not answer it; it keeps "
                    "one of %d threads of its kind until it ends or the node starts again",
                    call.name,
                    (now_ms - call.begin_ms) // 60_000,
                    self.count,
                    extra={"event": "remote.call_slow"},
                )
