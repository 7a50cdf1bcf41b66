"""The metrics and probes of a node: one method for each phase of its life.

The port is bound with the node's other ports. The endpoint is built when the node's parts are, and
serves from then on: requests wait in the backlog while the metadata log is loaded. Without
`metrics.listener` the methods do nothing, and neither the HTTP library nor the modules that gather
metrics are imported.

Kafka: kafka.server.{KafkaRaftServer, BrokerServer}, which register MBeans as they start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.network.tls_context import Store, TlsSettings, server_context
from ottla.server.system.ports import port_taken

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import Sequence

    from ottla.config.metrics import MetricsSettings
    from ottla.http.host import Page
    from ottla.network.server import Listener
    from ottla.server.broker.broker import Broker
    from ottla.server.controller.controller_node import ControllerNode
    from ottla.server.http.app import NodeHealth
    from ottla.server.metrics.node import NodeMetrics
    from ottla.server.metrics.requests import RequestMetrics
    from ottla.server.system.environment import HttpService, Network, Stopwatch
    from ottla.server.system.turns import TurnWatch
    from ottla.storage.directories.loader import LoadProgress


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
        from ottla.server.http.app import NodeHealth
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
        from ottla.server.http.app import NodePages

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

    def recovering(self, loads: list[LoadProgress]) -> None:
        """Report that the node begins to open its logs."""
        if self._served is not None:
            self._served.health.recovering(loads)

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
