"""The pages of a node: /metrics and the probes.

`/livez` reports whether the loop answers, `/readyz` whether the node serves clients, `/startupz`
whether the start is complete, with the progress of recovery. A node in recovery is alive: a restart
would begin the recovery again.

Kafka: none; Kubernetes users probe its port, which is closed while it recovers.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse

from ottla.http.host import Page
from ottla.metrics.exposition import OPENMETRICS_TYPE, TEXT_TYPE, Exposition
from ottla.server.http.health import BrokerState
from ottla.server.system.process_metrics import ProcessMetrics
from ottla.server.system.workers import yield_interpreter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.metrics.families import Series, Spelling
    from ottla.server.http.health import NodeHealth

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
            checks = await health.ask(health.checks)
        except TimeoutError:
            return _answer(is_good=False, state=health.state, reason="the loop is stuck")
        return _answer(is_good=all(checks.values()), state=health.state, checks=checks)

    async def startupz(self, _request: Request) -> Response:
        """Report whether the start is complete, and the number of logs to be opened."""
        health = self._health
        is_over = health.state in {BrokerState.RUNNING, BrokerState.SHUTTING_DOWN}
        return _answer(is_good=is_over, state=health.state, recovery=health.progress())


def _answer(*, is_good: bool, state: BrokerState, **more: Any) -> JSONResponse:
    status = "ok" if is_good else "unavailable"
    content = {"status": status, "state": state.name.lower(), **more}
    return JSONResponse(content, OK if is_good else UNAVAILABLE)
