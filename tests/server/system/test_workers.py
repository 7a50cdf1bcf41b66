"""Threads of a node's disks: one that hangs stops no other."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING

from ottla.server.system.workers import VolumeWorkers, Workers
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_volume_that_hangs_delays_no_other() -> None:
    """Each has threads of its own, started with its first job."""
    thawed = threading.Event()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        workers = VolumeWorkers(lambda _volume: Workers(loop, 2))

        def run(volume: str, job: Callable[[], object]) -> asyncio.Future[object]:
            future: asyncio.Future[object] = loop.create_future()
            workers.run(volume, job, lambda result, _error: future.set_result(result))
            return future

        hanging = [run("/a", partial(thawed.wait, WAIT_S)) for _ in range(5)]
        async with asyncio.timeout(WAIT_S):
            assert await run("/b", lambda: 7) == 7
            assert not any(one.done() for one in hanging)
            thawed.set()
            await asyncio.gather(*hanging)
        workers.close()
        workers.run("/a", lambda: None, lambda _result, _error: None)

    asyncio.run(work())
