"""Threads for calls that wait for the disk or take long; results are callbacks on the loop.

Python code in a worker competes with the loop for the GIL: jobs should mostly run calls that
release it, such as reads of files.
Kafka: the flush and log-loading threads.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Hashable
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from ottla.server.system.environment import WorkerPool

T = TypeVar("T")
_DetachedJob: TypeAlias = "tuple[Callable[[], Any], Callable[..., None]]"
log = logging.getLogger("ottla.workers")


class Workers:
    """A small pool bound to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = 2) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ottla-worker")
        self._is_closed = False

    def run(self, job: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """Run the job on a thread, then done(result, error) on the loop."""
        if self._is_closed:
            return
        future = self._pool.submit(job)
        future.add_done_callback(lambda finished: self._hand_back(finished, done))

    def _hand_back(
        self, future: Future[T], done: Callable[[T | None, Exception | None], None]
    ) -> None:
        error = future.exception()
        result = None if error is not None else future.result()
        if not self._loop.is_closed():
            failure = error if isinstance(error, Exception) else None
            self._loop.call_soon_threadsafe(done, result, failure)

    def close(self) -> None:
        """Wait for the running jobs and end the threads; later jobs are ignored."""
        self._is_closed = True
        self._pool.shutdown(wait=True)


class DetachedThreads:
    """Threads for calls that may never end: a thread for each call that runs, used again.

    As daemons they do not keep the process from its end; those of an executor do.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wait_s: float = 10) -> None:
        """Wait so long at the close, as Kafka does for its remote storage."""
        self._loop = loop
        self._wait_s = wait_s
        self._jobs: SimpleQueue[_DetachedJob | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._running = 0
        self._is_closed = False
        self.is_ended = False

    def run(self, job: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """Run the job on a thread, then done(result, error) on the loop; ignored once closed."""
        if self._is_closed:
            return
        self._running += 1
        self._jobs.put((job, done))
        if self._running > len(self._threads):
            thread = Thread(target=self._work, name="ottla-remote", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, done = entry
            result, error = None, None
            try:
                result = job()
            except Exception as raised:  # noqa: BLE001 - handed to whoever waits
                error = raised
            with suppress(RuntimeError):  # the loop was closed: no result is awaited
                self._loop.call_soon_threadsafe(self._ended, done, result, error)

    def _ended(self, done: Callable[..., None], result: object, error: Exception | None) -> None:
        self._running -= 1
        done(result, error)

    def close(self) -> None:
        """Wait for the running jobs, for a limited time; later ones are ignored."""
        self._is_closed = True
        end_s = time.monotonic() + self._wait_s
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        self.is_ended = not any(thread.is_alive() for thread in self._threads)


class VolumeWorkers:
    """Workers for each volume: a disk that hangs delays no call to another one."""

    def __init__(self, start: Callable[[Hashable], WorkerPool]) -> None:
        """start(volume) returns the workers of one volume."""
        self._start = start
        self._pools: dict[Hashable, WorkerPool] = {}
        self._under_way: Counter[Hashable] = Counter()
        self._is_closed = False

    def is_idle(self, volume: Hashable) -> bool:
        """Whether no job of the volume waits or runs."""
        return not self._under_way[volume]

    def run(
        self,
        volume: Hashable,
        job: Callable[[], T],
        done: Callable[[T | None, Exception | None], None],
    ) -> None:
        """Run the job in a worker of the volume, then done(result, error); ignored once closed."""
        if self._is_closed:
            return
        pool = self._pools.get(volume)
        if pool is None:
            pool = self._pools[volume] = self._start(volume)
        self._under_way[volume] += 1

        def finished(result: T | None, error: Exception | None) -> None:
            self._under_way[volume] -= 1
            done(result, error)

        pool.run(job, finished)

    def close(self) -> None:
        """Wait for the running jobs; later ones are ignored."""
        self._is_closed = True
        for pool in self._pools.values():
            pool.close()


def yield_interpreter() -> None:
    """Let another thread run Python code, in particular that of the node's loop."""
    time.sleep(0)


def new_lock() -> AbstractContextManager[object]:
    """Return a lock for what several workers share; the loop never takes one."""
    return Lock()
