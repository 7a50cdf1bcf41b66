"""The metrics and probes of a node: one method for each phase of its life.

The port is bound with the node's other ports. The endpoint is built when the node's parts are, and
serves from then on: requests wait in the backlog while the metadata log is loaded. Without
`metrics.listener` the methods do nothing, and neither the HTTP library nor the modules that gather
metrics are imported.

Kafka: kafka.server.{KafkaRaftServer, BrokerServer}, which register MBeans as they start.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
from ottla.network.tls_context import Store, TlsSettings, server_context
from ottla.server.system.ports import port_taken
from ottla.server.system.process import ProcessMetrics
from ottla.server.system.workers import yield_interpreter

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.config.metrics import MetricsSettings
    from ottla.metrics.families import Spelling
    from ottla.network.server import Listener
    from ottla.server.broker.broker import Broker
    from ottla.server.controller.controller_node import ControllerNode
    from ottla.server.metrics.node import NodeMetrics
    from ottla.server.metrics.requests import RequestMetrics
    from ottla.server.system.environment import HttpService, Network, Stopwatch
    from ottla.server.system.turns import TurnWatch
    from ottla.storage.directories.loader import FoundLog
    from ottla.storage.directories.log_dir import LogDirectory

T = TypeVar("T")
_ONE = ("",)
_STATE = gauge(
    "kafka.server", "KafkaServer", "BrokerState", "1 starts, 2 recovers, 3 runs, 7 stops."
)
_REMAINING = gauge(
    "kafka.log", "LogManager", "remainingLogsToRecover", "Logs that are still to be opened."
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
        self._paths: dict[int, str] = {}
        self._total: dict[str, int] = {}
        self.opened_counts: dict[str, int] = {}
        """Logs opened so far by directory."""

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

    def recovering(self, log_dirs: Iterable[LogDirectory]) -> None:
        """Count the logs that are about to be opened."""
        for log_dir in log_dirs:
            names = log_dir.directory.list()
            self._paths[id(log_dir.directory)] = log_dir.path
            self._total[log_dir.path] = sum(log_dir.directory.is_directory(name) for name in names)
            self.opened_counts[log_dir.path] = 0
        self.state = BrokerState.RECOVERY

    def opened(self, log: FoundLog) -> None:
        """Count a log that was opened."""
        path = self._paths.get(id(log.directory))
        if path is not None:
            self.opened_counts[path] += 1

    def recovered(self) -> None:
        """Set all logs to opened."""
        self.opened_counts.update(self._total)
        self.state = BrokerState.STARTING

    def running(self) -> None:
        """Set the state of a node that serves requests."""
        self.state = BrokerState.RUNNING

    # Read by other threads

    def progress(self) -> dict[str, dict[str, int]]:
        """Return total and remaining logs by directory; empty before recovery begins."""
        opened = dict(self.opened_counts)
        return {
            path: {"logs": total, "remaining": max(0, total - opened[path])}
            for path, total in dict(self._total).items()
        }

    def series(self) -> Iterator[Series]:
        """Yield the broker's state and the remaining logs; on any thread."""
        yield Series(_STATE, _ONE, (int(self.state),))
        progress = self.progress()
        labels = tuple(label_text(dir=path) for path in progress)
        yield Series(_REMAINING, labels, [one["remaining"] for one in progress.values()])

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


class HttpPort:
    """The bound port of `metrics.listener`, if that is set; it serves nothing yet."""

    def __init__(self, settings: MetricsSettings, network: Network) -> None:
        """Bind the port. Raises PortTaken."""
        self.settings = settings
        self.service = self._bind(network)
        """None without `metrics.listener`."""
        self.requests = None if self.service is None else _request_metrics()
        """The requests counted by the node's dispatchers."""

    def _bind(self, network: Network) -> HttpService | None:
        address = self.settings.address
        if address is None:
            return None
        try:
            return network.bind_http(address.host, address.port)
        except OSError as error:
            raise port_taken(
                address.host,
                address.port,
                error,
                network,
                setting="metrics.listener",
                overrides=lambda port: [f"metrics.listener={address.host}:{port}"],
            ) from error

    def close(self) -> None:
        """Close the server."""
        if self.service is not None:
            self.service.stop()


class _Served(NamedTuple):
    """The parts that exist where `metrics.listener` is set."""

    service: HttpService
    metrics: NodeMetrics
    health: NodeHealth


class HttpEndpoint:
    """The HTTP server of one node and its content."""

    def __init__(
        self,
        port: HttpPort,
        broker: Broker,
        controller: ControllerNode,
        listeners: Sequence[Listener],
        *,
        loop: asyncio.AbstractEventLoop,
        stopwatch: Stopwatch,
        turns: TurnWatch,
    ) -> None:
        """Take the bound port and the parts of the node that are measured."""
        self._settings = port.settings
        self._served: _Served | None = None
        if port.service is None:
            return
        from ottla.server.http.endpoint import NodeHealth
        from ottla.server.metrics.node import NodeMetrics

        assert port.requests is not None, "it is there with the port"
        metrics = NodeMetrics(
            broker,
            controller,
            listeners,
            loop,
            level=port.settings.metrics_partition_level,
            requests=port.requests,
            stopwatch=stopwatch,
            turns=turns,
        )
        self._served = _Served(port.service, metrics, NodeHealth(broker, controller, metrics))

    def _pages(self) -> list[Page]:
        from ottla.metrics.families import Spelling
        from ottla.server.http.endpoint import NodePages

        return NodePages(self.health, Spelling(self._settings.metrics_names)).all()

    def _context(self) -> ssl.SSLContext | None:
        """Return the context of HTTPS."""
        location = self._settings.metrics_ssl_keystore_location
        if location is None:
            return None
        secret = self._settings.metrics_ssl_key_password
        password = None if secret is None else secret.reveal()
        keys = Store("PEM", location, None, key_password=password)
        return server_context(TlsSettings(keys, Store("PEM", None, None), (), ()))

    @property
    def health(self) -> NodeHealth:
        """The node's state as the pages show it; only where `metrics.listener` is set."""
        assert self._served is not None, "metrics.listener is not set"
        return self._served.health

    @property
    def metrics(self) -> NodeMetrics:
        """The metrics; only where `metrics.listener` is set."""
        assert self._served is not None, "metrics.listener is not set"
        return self._served.metrics

    @property
    def address(self) -> tuple[str, int] | None:
        """Where it listens; None when it does not."""
        return None if self._served is None else self._served.service.address

    @property
    def url(self) -> str | None:
        """The address of /metrics for clients on this machine; None when nothing is served."""
        if self.address is None:
            return None
        host, port = self.address
        shown = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)  # noqa: S104 - shown
        scheme = "http" if self._settings.metrics_ssl_keystore_location is None else "https"
        return f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{port}/metrics"

    def start(self) -> None:
        """Begin to answer probes: the node starts. Raises TlsError."""
        if self._served is not None:
            self._served.health.starting()
            from ottla.http.host import Access, BasicLogin

            login = None
            password = self._settings.metrics_basic_auth_password
            if self._settings.metrics_basic_auth_username and password is not None:
                login = BasicLogin(self._settings.metrics_basic_auth_username, password)
            self._served.service.start(self._pages, Access(self._context(), login))

    def recovering(self, log_dirs: Iterable[LogDirectory]) -> None:
        """Report that the node begins to open its logs."""
        if self._served is not None:
            self._served.health.recovering(log_dirs)

    def opened(self, log: FoundLog) -> None:
        """Report an opened log."""
        if self._served is not None:
            self._served.health.opened(log)

    def recovered(self) -> None:
        """Report that all logs are open."""
        if self._served is not None:
            self._served.health.recovered()

    def running(self) -> None:
        """Report that the node serves requests, and begin to gather metrics."""
        if self._served is not None:
            self._served.metrics.start()
            self._served.health.running()
            self._served.service.begin()

    def failed(self, error: Exception) -> None:
        """Report that the node halts: it is no longer ready."""
        if self._served is not None:
            self._served.health.failed(error)

    def stopping(self) -> None:
        """Report that the node stops; gathering ends."""
        if self._served is not None:
            self._served.health.stopping()
            self._served.metrics.stop()

    def stop(self) -> None:
        """Close the server."""
        self.stopping()
        if self._served is not None:
            self._served.service.stop()


def _request_metrics() -> RequestMetrics:
    from ottla.server.metrics.requests import RequestMetrics

    return RequestMetrics()


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
