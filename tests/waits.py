"""Waits for what a node or a process does by itself.

The limit only ends a test that would wait forever; others may keep the machine busy meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 60.0


def wait_for(condition: Callable[[], bool], limit_s: float = WAIT_S) -> None:
    """Ask again and again until the condition holds."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


async def until(condition: Callable[[], Any], limit_s: float = 300.0) -> None:
    """Ask every 50 ms, often of virtual time, until the condition holds."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.05)
