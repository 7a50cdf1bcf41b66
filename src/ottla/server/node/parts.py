"""The parts of a node as a list, and what waits for them.

A subsystem is one `NodeParts.add` in `Node`: what it starts, the changes that it applies, what it
closes.

Kafka: the startup and shutdown of kafka.server.{BrokerServer, ControllerServer}, the publishers of
BrokerMetadataPublisher, kafka.server.{Reconfigurable, BrokerReconfigurable};
org.apache.kafka.server.util.FutureUtils.waitWithLogging.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.purgatory.pending import Pending

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


log = logging.getLogger("ottla.node")


class _NodePart(NamedTuple):
    """One subsystem; None stands for what it does not need."""

    name: str
    start: Callable[[], object] | None
    metadata_changed: Callable[[MetadataDelta, MetadataImage], object] | None
    reconfigure: Callable[[BrokerConfig], object] | None
    close: Callable[[], object] | None


class NodeParts:
    """A node's parts in the order in which they were built: each may use those before it."""

    def __init__(self) -> None:
        self._parts: list[_NodePart] = []

    def add(
        self,
        name: str,
        *,
        start: Callable[[], object] | None = None,
        metadata_changed: Callable[[MetadataDelta, MetadataImage], object] | None = None,
        reconfigure: Callable[[BrokerConfig], object] | None = None,
        close: Callable[[], object] | None = None,
    ) -> None:
        """Add a part on top of the others.

        start() is called on every node before clients connect, on a broker once it is unfenced;
        metadata_changed and reconfigure are called on brokers alone; metadata_changed with
        each committed change, the first time with all of them; reconfigure with the settings in
        force when those of brokers have changed; close() once, also before a start: it begins
        nothing new and releases what the part has.
        """
        self._parts.append(_NodePart(name, start, metadata_changed, reconfigure, close))

    def start(self) -> None:
        """Start the parts, the lowest first."""
        for part in self._parts:
            if part.start is not None:
                part.start()

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a change of the metadata; an error of one part stops no other part."""
        for part in self._parts:
            if part.metadata_changed is not None:
                text = "a metadata change was not applied to %s; report this as a bug, then restart"
                self._isolated(text, part.name, partial(part.metadata_changed, delta, image))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed settings; an error of one part stops no other part."""
        for part in self._parts:
            if part.reconfigure is not None:
                text = "changed settings were not applied to %s; report this as a bug, then restart"
                self._isolated(text, part.name, partial(part.reconfigure, config))

    def close(self, down_to: str = "") -> None:
        """Close the parts that are still open, the highest first.

        Those from `down_to` downwards stay open. An error of one part leaves no other one open.
        """
        while self._parts and self._parts[-1].name != down_to:
            part = self._parts.pop()
            if part.close is not None:
                self._isolated("%s was not closed; report this as a bug", part.name, part.close)

    def _isolated(self, text: str, name: str, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:  # the other parts must still be called
            log.exception(text, name, extra={"event": "node.part_failed", "part": name})
