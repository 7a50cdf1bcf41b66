"""The metrics and probes of a node: one method for each phase of its life.

Without `metrics.listener` the methods do nothing, and neither the HTTP library nor the modules that
gather metrics are imported.

Kafka: kafka.server.{KafkaRaftServer, BrokerServer}, which register MBeans as they start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.http.health import NodeHealth
from ottla.server.node.startup import port_taken

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Sequence

    from starlette.types import ASGIApp

    from ottla.config.metrics import MetricsSettings
    from ottla.network.server import Listener
    from ottla.server.broker.broker import Broker
    from ottla.server.controller.controller_node import ControllerNode
    from ottla.server.metrics.node import NodeMetrics
    from ottla.server.metrics.requests import RequestMetrics
    from ottla.server.system.environment import Environment, HttpService, Network
    from ottla.storage.directories.loader import FoundLog
    from ottla.storage.directories.log_dir import LogDirectory


class HttpEndpoint:
    """The HTTP server of one node and its content."""

    def __init__(self, settings: MetricsSettings, environment: Environment) -> None:
        """Take the port and start the thread, where `metrics.listener` is set. Raises PortTaken."""
        self._settings = settings
        self._stopwatch = environment.stopwatch
        self.health = NodeHealth()
        self.requests = None if settings.address is None else _request_metrics()
        """What the node's dispatchers count; None where nothing is to be scraped."""
        self._metrics: NodeMetrics | None = None
        """None before the node runs."""
        self._server = self._bind(environment.network)
        if self._server is not None:
            self.health.starting()
            self._server.start()

    def _bind(self, network: Network) -> HttpService | None:
        address = self._settings.address
        if address is None:
            return None
        try:
            return network.serve_http(address.host, address.port, self._make_app)
        except OSError as error:
            raise port_taken(
                address.host,
                address.port,
                error,
                network,
                setting="metrics.listener",
                overrides=lambda port: [f"metrics.listener={address.host}:{port}"],
            ) from error

    def _make_app(self) -> ASGIApp:
        from ottla.metrics.families import Spelling
        from ottla.server.http.app import make_app

        return make_app(self.health, Spelling(self._settings.metrics_names))

    @property
    def address(self) -> tuple[str, int] | None:
        """Where it listens; None when it does not."""
        return None if self._server is None else self._server.address

    @property
    def url(self) -> str | None:
        """The address of /metrics for clients on this machine; None when nothing is served."""
        if self.address is None:
            return None
        host, port = self.address
        shown = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)  # noqa: S104 - shown
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/metrics"

    def recovering(self, log_dirs: Iterable[LogDirectory]) -> None:
        """Report that the node begins to open its logs."""
        if self._server is not None:
            self.health.recovering(log_dirs)

    def opened(self, log: FoundLog) -> None:
        """Report an opened log."""
        if self._server is not None:
            self.health.opened(log)

    def recovered(self) -> None:
        """Report that all logs are open."""
        if self._server is not None:
            self.health.recovered()

    def running(
        self,
        broker: Broker,
        controller: ControllerNode,
        listeners: Sequence[Listener],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Report that the node serves requests, and begin to gather metrics."""
        if self._server is None:
            return
        from ottla.server.metrics.node import NodeMetrics

        assert self.requests is not None, "the endpoint is configured"
        self._metrics = NodeMetrics(
            broker,
            controller,
            listeners,
            loop,
            level=self._settings.metrics_partition_level,
            requests=self.requests,
            stopwatch=self._stopwatch,
        )
        self._metrics.start()
        self.health.running(broker, controller, self._metrics)
        self._server.node_started()

    def failed(self, error: Exception) -> None:
        """Report that the node halts: it is not ready any more."""
        self.health.failed(error)

    def stopping(self) -> None:
        """Report that the node stops; gathering ends."""
        self.health.stopping()
        if self._metrics is not None:
            self._metrics.stop()

    def stop(self) -> None:
        """Close the server."""
        self.stopping()
        if self._server is not None:
            self._server.stop()


def _request_metrics() -> RequestMetrics:
    from ottla.server.metrics.requests import RequestMetrics

    return RequestMetrics()
