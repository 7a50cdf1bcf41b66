"""Garbage collection of a node's process: short, and at times that the loop's work decides.

Python collects when many more objects were created than freed, and counts every freed object, old
ones included: while state is replaced, the youngest generation grows to some 70,000 objects, whose
collection takes 40 ms. Here the loop collects after so much work, in which no more than some
thousand objects can have been created.

Kafka: none; the JVM collects on threads of its own.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ottla.server.system.turns import TurnWatch

WORK_S: Final = 0.0025
"""The work of the loop after which it collects: creating objects takes about as long as that."""
CHECK_EVERY: Final = 400
"""Collections of young objects between two checks whether a full one is due."""
_YOUNG, _ALL = 1, 2
_GROWTH: Final = 2
"""A full collection is due when the used memory blocks have grown by this factor since the last."""
_MIN_GROWTH_BLOCKS: Final = 1_500_000
"""And by this number at least, some 100 MB: it visits all objects, a million in 0.2 s."""


class CollectionSchedule:
    """Collects garbage on one loop, in turns of its own; Python's own schedule is off."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turns: TurnWatch,
        *,
        collect: Callable[[int], object] = gc.collect,
        allocated_blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        self._loop = loop
        self._turns = turns
        self._collect = collect
        self._allocated_blocks = allocated_blocks
        self._count = 0
        self._blocks = 0

    def start(self) -> None:
        """Exclude the objects of the start from all collections, and collect as scheduled."""
        self._collect(_ALL)
        gc.freeze()
        gc.disable()
        self._blocks = self._allocated_blocks()
        self._turns.report_work(WORK_S, self._plan)

    def stop(self) -> None:
        """Return to Python's own schedule."""
        self._turns.report_work(WORK_S, None)
        gc.enable()

    def _plan(self) -> None:
        self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Collect the young objects; the survivors count as old and are not visited again."""
        self._count += 1
        if self._count % CHECK_EVERY == 0 and self._is_full_due():
            self._collect(_ALL)
            self._blocks = self._allocated_blocks()
        else:
            self._collect(_YOUNG)

    def _is_full_due(self) -> bool:
        blocks = self._allocated_blocks()
        return blocks > max(self._blocks * _GROWTH, self._blocks + _MIN_GROWTH_BLOCKS)
