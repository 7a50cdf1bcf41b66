"""How soon a cluster works again when a fault is over: not only in the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.errors import KafkaError
from tests.simulation.clusters.settings import change_settings
from tests.waits import until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from random import Random
    from typing import Any

    from ottla.testing.simulation import SimulatedCluster
    from tests.simulation.clusters.work import ClusterWork

UP_S: Final = 40.0
"""Until all nodes have started: a start waits for other controllers, or for logs to recover."""
COMMIT_S: Final = 15.0
"""Until the controller commits a change: an election, and a client that finds the controller."""
ACKNOWLEDGED_S: Final = 40.0
"""Until each partition acknowledges a record with acks=all."""
_TRY_S: Final = 5.0


class Bounds:
    """Looks whether what must work does so in time; AssertionError if not."""

    def __init__(self, cluster: SimulatedCluster, work: ClusterWork, rng: Random) -> None:
        self._cluster = cluster
        self._work = work
        self._rng = rng
        self.longest_s: dict[str, float] = {}
        """What took longest so far, by what it was."""

    async def check(self, is_up: Callable[[], bool]) -> None:
        """All nodes are up, the controller commits, and each partition acknowledges, in time."""
        await self._within(UP_S, "all nodes run", until(is_up, UP_S, 0.2))
        await self._within(COMMIT_S, "the controller commits", self._commit())
        await self._within(ACKNOWLEDGED_S, "partitions acknowledge", self._acknowledge())

    async def _within(self, limit_s: float, what: str, work: Coroutine[Any, Any, None]) -> None:
        begin_s = self._cluster.loop.time()
        try:
            async with asyncio.timeout(limit_s):
                await work
        except TimeoutError:
            raise AssertionError(f"not {limit_s:.0f} s after a fault: {what}") from None
        lasted_s = self._cluster.loop.time() - begin_s
        self.longest_s[what] = max(self.longest_s.get(what, 0.0), lasted_s)

    async def _commit(self) -> None:
        async with self._cluster.admin() as admin:
            while True:
                try:
                    await change_settings(admin, self._rng, ["kept"], 1, timeout_s=_TRY_S)
                except KafkaError:
                    await asyncio.sleep(0.1)
                else:
                    return

    async def _acknowledge(self) -> None:
        async with self._cluster.producer(acks="all") as producer:
            sending = (self._work.send_one(producer, *one) for one in self._work.partitions())
            await asyncio.gather(*sending)
