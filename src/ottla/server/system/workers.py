"""Threads for calls that wait for the disk; their results come back as events on the loop.

Kafka: the flush and log-loading threads. Only calls that release the GIL run here.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from concurrent.futures import Future

T = TypeVar("T")
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
        """Wait for the jobs under way and end the threads."""
        self._is_closed = True
        self._pool.shutdown(wait=True)


def yield_interpreter() -> None:
    """Let another thread run Python code, that of the node's loop before all."""
    time.sleep(0)
