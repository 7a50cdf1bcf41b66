"""Waits of a starting or stopping node for its own parts; a node that halts ends them.

Kafka: org.apache.kafka.server.util.FutureUtils.waitWithLogging.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.purgatory.pending import Pending

log = logging.getLogger("ottla.node")
REPORT_INTERVAL_S: Final = 10.0
"""Interval at which a waiting start logs the reason."""
_LONGEST_LIMIT_MS: Final = 1 << 40
"""Longer limits count as none: event loops refuse Kafka's default of 2^63 - 1 ms."""


class NodeWaits:
    """Waits for pending results on the node's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wakes: list[Callable[[], None]] = []
        self._failure: Exception | None = None

    def fail(self, error: Exception) -> None:
        """End all waits, also later ones, with the error of a node that halts."""
        self._failure = error
        for wake in self._wakes:
            wake()

    async def completed(
        self,
        pending: Pending[Any],
        limit_ms: int | None = None,
        *,
        reason: Callable[[], str] | None = None,
    ) -> None:
        """Wait until it is complete; raises its error or that of a node that halts.

        REQUEST_TIMED_OUT after limit_ms (None: no limit). reason() says in the log why the wait
        is long.
        """
        woken = self._loop.create_future()

        def wake(_done: Pending[Any] | None = None) -> None:
            if not woken.done():
                woken.set_result(None)

        pending.on_done(wake)
        self._wakes.append(wake)
        if self._failure is not None:
            wake()
        try:
            await self._until(woken, limit_ms, reason)
        finally:
            self._wakes.remove(wake)
        if not pending.done:
            raise self._failure or KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "the controller does not answer"
            )
        _ = pending.value

    async def _until(
        self, woken: asyncio.Future[None], limit_ms: int | None, reason: Callable[[], str] | None
    ) -> None:
        """Wait, in intervals where the reason is logged."""
        end_s = inf
        if limit_ms is not None and limit_ms < _LONGEST_LIMIT_MS:
            end_s = self._loop.time() + limit_ms / 1000
        interval_s = inf if reason is None else REPORT_INTERVAL_S
        while not woken.done() and (left_s := end_s - self._loop.time()) > 0:
            timeout_s = min(left_s, interval_s)
            await asyncio.wait({woken}, timeout=None if timeout_s == inf else timeout_s)
            if reason is not None and not woken.done():
                log.warning(
                    "the start waits: %s; start what is missing",
                    reason(),
                    extra={"event": "node.waiting"},
                )
