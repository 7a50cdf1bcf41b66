"""The pages of a node, /metrics and the probes, and the state that they show.

`/livez` reports whether the loop answers, `/readyz` whether the node serves clients, `/startupz`
whether the start is complete, with the progress of recovery. A node in recovery is alive: a restart
would begin the recovery again.

Kafka: none; Kubernetes users probe its port, which is closed while it recovers;
org.apache.kafka.metadata.BrokerState; LogManager's remainingLogsToRecover.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse

from ottla.http.host import Page
from ottla.metrics.families import (
    OPENMETRICS_TYPE,
    TEXT_TYPE,
    Exposition,
    Series,
    gauge,
    label_text,
)
from ottla.server.system.process import ProcessMetrics
from ottla.server.system.workers import yield_interpreter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.metrics.families import Spelling
    from ottla.server.broker.broker import Broker
    from ottla.server.controller.controller_node import ControllerNode
    from ottla.server.metrics.node import NodeMetrics
    from ottla.storage.directories.loader import LoadProgress

T = TypeVar("T")
_ONE = ("",)
_STATE = gauge(
    "kafka.server", "KafkaServer", "BrokerState", "1 starts, 2 recovers, 3 runs, 7 stops."
)
_REMAINING = gauge(
    "kafka.log", "LogManager", "remainingLogsToRecover", "Logs that are still to be opened."
)
_SEGMENTS = gauge(
    "kafka.log",
    "LogManager",
    "remainingSegmentsToRecover",
    "Segments still to be read of the log that a thread recovers.",
)
LIVE_LIMIT_S = 5.0
"""A loop that has not answered for this long counts as stuck."""


class BrokerState(IntEnum):
    """A broker's phases, with Kafka's numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    SHUTTING_DOWN = 7


class NodeHealth:
    """Written by the node's loop, read by other threads: plain attributes only."""

    def __init__(self, broker: Broker, controller: ControllerNode, metrics: NodeMetrics) -> None:
        self.state = BrokerState.NOT_RUNNING
        self.failure: Exception | None = None
        self._broker = broker
        self._controller = controller
        self._metrics = metrics
        self.loads: list[LoadProgress] = []
        """The directories whose logs are opened."""

    # Written by the node

    def starting(self) -> None:
        """Set the state of a node that starts."""
        self.state = BrokerState.STARTING

    def failed(self, error: Exception) -> None:
        """Set the error with which the node halts."""
        self.failure = error

    def stopping(self) -> None:
        """Set the state of a node that stops: its loop is no longer called."""
        self.state = BrokerState.SHUTTING_DOWN

    def recovering(self, loads: list[LoadProgress]) -> None:
        """Set the directories whose logs are about to be opened."""
        self.loads = loads
        self.state = BrokerState.RECOVERY

    def recovered(self) -> None:
        """Set the state of a node whose logs are open."""
        self.state = BrokerState.STARTING

    def running(self) -> None:
        """Set the state of a node that serves requests."""
        self.state = BrokerState.RUNNING

    # Read by other threads

    def progress(self) -> dict[str, dict[str, int]]:
        """Return the numbers of each directory; empty before recovery begins."""
        return {
            load.path: {
                "logs": load.log_count,
                "remaining": load.remaining_count,
                "remaining_segments": load.segment_count,
            }
            for load in self.loads
        }

    def series(self) -> Iterator[Series]:
        """Yield the broker's state and the remaining logs; on any thread."""
        yield Series(_STATE, _ONE, (int(self.state),))
        loads = self.loads
        labels = tuple(label_text(dir=load.path) for load in loads)
        yield Series(_REMAINING, labels, [load.remaining_count for load in loads])
        threads = tuple(label_text(dir=load.path, threadNum="0") for load in loads)
        yield Series(_SEGMENTS, threads, [load.segment_count for load in loads])

    def checks(self) -> dict[str, bool]:
        """Return the conditions of a ready node; on the node's loop.

        A node that is a controller only has no registration that could be fenced.
        """
        broker, controller = self._broker, self._controller
        online = broker.logs.online_directories
        applied = controller.image.offset_and_epoch.offset
        checks = {
            "serving": self.failure is None,
            "caught_up": applied + 1 >= controller.quorum.high_watermark,
            "disks": bool(online),
            "space": not online or not all(log_dir.is_short_of_space for log_dir in online),
        }
        if broker.metadata.config.is_broker:
            registration = controller.image.cluster.brokers.get(broker.node_id)
            checks["unfenced"] = registration is not None and not registration.fenced
        return checks

    def offline(self) -> dict[str, str]:
        """Return the error of each offline log directory, and what to do; on the node's loop."""
        return {
            log_dir.path: log_dir.offline_reason or str(log_dir.failure)
            for log_dir in self._broker.logs.directories
            if not log_dir.is_online
        }

    async def ask(self, question: Callable[[], T]) -> T:
        """Call a function on the node's loop; TimeoutError when it does not answer in time."""
        if self.state is not BrokerState.RUNNING:
            raise TimeoutError("the node does not run")
        answer: Future[T] = Future()
        answer.set_running_or_notify_cancel()  # a result after the timeout is no error

        def run() -> None:
            try:
                answer.set_result(question())
            except Exception as error:  # noqa: BLE001 - raised by the caller
                answer.set_exception(error)

        self._on_loop(run)
        return await asyncio.wait_for(asyncio.wrap_future(answer), LIVE_LIMIT_S)

    async def gather(self) -> list[Series]:
        """Return all series of the node; TimeoutError when its loop does not answer."""
        if self.state is not BrokerState.RUNNING:
            return []
        answer: Future[list[Series]] = Future()
        answer.set_running_or_notify_cancel()
        self._on_loop(lambda: self._metrics.gather(answer.set_result, answer.set_exception))
        return await asyncio.wait_for(asyncio.wrap_future(answer), 2 * LIVE_LIMIT_S)

    def _on_loop(self, call: Callable[[], None]) -> None:
        try:
            self._metrics.loop.call_soon_threadsafe(call)
        except RuntimeError as error:  # the loop is closed
            raise TimeoutError(str(error)) from error


OK, UNAVAILABLE = 200, 503
SCRAPES_MAX = 16
"""Concurrent scrapes while they gather; each needs megabytes, even if its client disconnects."""


class NodePages:
    """The pages, one method for each; all are public, as those of the JVM's exporters are."""

    def __init__(self, health: NodeHealth, spelling: Spelling) -> None:
        self._health = health
        self._process = ProcessMetrics()
        self._exposition = Exposition(spelling)
        self._scrape_count = 0

    def all(self) -> list[Page]:
        """Return the pages; probes need no login: the kubelet could not give one."""
        return [
            Page("/metrics", self.metrics, needs_login=True, is_public=True),
            Page("/livez", self.livez, is_public=True),
            Page("/readyz", self.readyz, is_public=True),
            Page("/startupz", self.startupz, is_public=True),
        ]

    async def metrics(self, request: Request) -> Response:
        """Answer a scrape, in OpenMetrics format when the client accepts it."""
        if self._scrape_count >= SCRAPES_MAX:
            return PlainTextResponse("too many scrapes at a time\n", UNAVAILABLE)
        self._scrape_count += 1
        try:
            series = await self._health.gather()
        except TimeoutError:
            return PlainTextResponse("the node's loop does not answer\n", UNAVAILABLE)
        finally:
            self._scrape_count -= 1
        openmetrics = "application/openmetrics-text" in request.headers.get("accept", "")
        whole = chain(self._health.series(), self._process.collect(), series)
        return StreamingResponse(
            self._text(whole, openmetrics=openmetrics),
            headers={"content-type": OPENMETRICS_TYPE if openmetrics else TEXT_TYPE},
        )

    async def _text(self, series: Iterable[Series], *, openmetrics: bool) -> AsyncIterator[bytes]:
        for piece in self._exposition.render(series, openmetrics=openmetrics):
            yield piece
            yield_interpreter()
            await asyncio.sleep(0)

    async def livez(self, _request: Request) -> Response:
        """Report whether the loop answers; a node that starts or recovers is alive."""
        if self._health.state is not BrokerState.RUNNING:
            return _answer(is_good=True, state=self._health.state)
        try:
            await self._health.ask(lambda: None)
        except TimeoutError:
            return _answer(is_good=False, state=self._health.state, reason="the loop is stuck")
        return _answer(is_good=True, state=self._health.state)

    async def readyz(self, _request: Request) -> Response:
        """Report whether the node serves clients: running, unfenced and caught up."""
        health = self._health
        if health.state is not BrokerState.RUNNING:
            return _answer(is_good=False, state=health.state)
        try:
            checks, offline = await health.ask(lambda: (health.checks(), health.offline()))
        except TimeoutError:
            return _answer(is_good=False, state=health.state, reason="the loop is stuck")
        more = {"offline_log_directories": offline} if offline else {}
        return _answer(is_good=all(checks.values()), state=health.state, checks=checks, **more)

    async def startupz(self, _request: Request) -> Response:
        """Report whether the start is complete, and the number of logs to be opened."""
        health = self._health
        is_over = health.state in {BrokerState.RUNNING, BrokerState.SHUTTING_DOWN}
        return _answer(is_good=is_over, state=health.state, recovery=health.progress())


def _answer(*, is_good: bool, state: BrokerState, **more: Any) -> JSONResponse:
    status = "ok" if is_good else "unavailable"
    content = {"status": status, "state": state.name.lower(), **more}
    return JSONResponse(content, OK if is_good else UNAVAILABLE)
