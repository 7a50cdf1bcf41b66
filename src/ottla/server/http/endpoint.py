"""The metrics and probes of a node, from its first moment to its last; nothing unless configured.

A node calls one function at each step of its life. Without `metrics.listener` they do nothing, and
neither the library nor the gathering modules are imported.

Kafka: kafka.server.{KafkaRaftServer, BrokerServer}, which register MBeans as they start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.http.health import BrokerState, NodeHealth
from ottla.server.node.startup import port_taken

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

    from starlette.types import ASGIApp

    from ottla.config.metrics import MetricsSettings
    from ottla.network.server import Listener
    from ottla.server.broker.broker import Broker
    from ottla.server.controller.controller_node import ControllerNode
    from ottla.server.metrics.node import NodeMetrics
    from ottla.server.metrics.requests import RequestMetrics
    from ottla.server.system.environment import Environment, HttpService
    from ottla.storage.directories.loader import FoundLog
    from ottla.storage.directories.log_dir import LogDirectory


class HttpEndpoint:
    """One node's HTTP server and what it tells."""

    def __init__(
        self,
        settings: MetricsSettings,
        environment: Environment,
        requests: RequestMetrics | None,
    ) -> None:
        """Take the settings, and what the node's dispatchers count."""
        self._settings = settings
        self._network = environment.network
        self._stopwatch = environment.stopwatch
        self.health = NodeHealth()
        self._server: HttpService | None = None
        self._metrics: NodeMetrics | None = None
        self._requests = requests

    @property
    def address(self) -> tuple[str, int] | None:
        """Where it listens; None when it does not."""
        return None if self._server is None else self._server.address

    @property
    def url(self) -> str | None:
        """The address of /metrics for somebody on this machine; None when nothing is served."""
        if self.address is None:
            return None
        host, port = self.address
        shown = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)  # noqa: S104 - shown
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/metrics"

    def bind(self) -> None:
        """Take the port and start the thread. Raises PortTaken."""
        wanted = self._settings.address
        if wanted is None:
            return
        self.health.state = BrokerState.STARTING
        try:
            self._server = self._network.serve_http(wanted.host, wanted.port, self._make_app())
        except OSError as error:
            raise port_taken(
                wanted.host, wanted.port, error, self._network, setting="metrics.listener=HOST"
            ) from error
        self._server.start()

    def _make_app(self) -> Callable[[], ASGIApp]:
        def make() -> ASGIApp:
            from ottla.metrics.families import Spelling
            from ottla.server.http.app import make_app

            return make_app(self.health, Spelling(self._settings.metrics_names))

        return make

    def recovering(self, log_dirs: Iterable[LogDirectory]) -> None:
        """Note that the node is about to open its logs."""
        if self._server is not None:
            self.health.recovering(log_dirs)

    def opened(self, log: FoundLog) -> None:
        """Note that the node opened a log."""
        if self._server is not None:
            self.health.opened(log)

    def recovered(self) -> None:
        """Note that the node has opened all logs."""
        if self._server is not None:
            self.health.recovered()

    def running(
        self,
        broker: Broker,
        controller: ControllerNode,
        listeners: Sequence[Listener],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Note that the node serves requests, and begin to gather."""
        if self._server is None:
            return
        from ottla.server.metrics.node import NodeMetrics

        level = self._settings.metrics_partition_level
        assert self._requests is not None, "the endpoint is configured"
        self._metrics = NodeMetrics(
            broker,
            controller,
            listeners,
            loop,
            level=level,
            requests=self._requests,
            stopwatch=self._stopwatch,
        )
        self._metrics.start()
        self.health.running(broker, controller, self._metrics)
        self._server.node_started()

    def failed(self, error: Exception) -> None:
        """Note that the node halts: it is not ready any more."""
        self.health.failure = error

    def stopping(self) -> None:
        """Note that the node begins to stop: probes say so, gathering ends."""
        self.health.state = BrokerState.SHUTTING_DOWN
        self.health.metrics = None
        if self._metrics is not None:
            self._metrics.stop()

    def stop(self) -> None:
        """Close the server."""
        self.stopping()
        if self._server is not None:
            self._server.stop()
