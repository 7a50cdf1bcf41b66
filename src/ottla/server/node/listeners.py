"""A node's listening sockets: bound before anything else, opened and closed as settings change.

As in Kafka a listener is known by its name: one that stays keeps its port until the next start, and
one that is added is not advertised before.

Kafka: kafka.network.SocketServer, kafka.server.DynamicListenerConfig.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ottla.network.server import SCRATCH_BYTES, Listener
from ottla.server.node.startup import (
    PortTaken,
    connection_quota,
    frame_budget,
    limit_connections,
    port_taken,
    socket_options,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ottla.config.broker import BrokerConfig
    from ottla.config.broker.endpoints import Endpoint
    from ottla.server.system.environment import Environment

log = logging.getLogger("ottla.node")


class NodeListeners:
    """`bind`, `serve`, `start`; then `apply` whenever settings have changed, `close` at the end."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, config: BrokerConfig, environment: Environment
    ) -> None:
        self.open: list[Listener] = []
        """The same list as long as the node lives."""
        self.addresses: dict[str, tuple[str, int]] = {}
        """By name: the host that is advertised and the port that was bound, for this machine."""
        self.quota = connection_quota(config, environment)
        self._loop = loop
        self._config = config
        self._environment = environment
        self._scratch = bytearray(SCRATCH_BYTES)
        self._budget = frame_budget(config, environment.limits().memory_bytes)
        self._prepare: Callable[[Listener], None] | None = None
        self._is_started = False

    def bind(self) -> None:
        """Take the ports. Raises PortTaken."""
        for endpoint in self._config.endpoints:
            self._bind(endpoint)
        limit_connections(self._config, self._environment, self.quota, self.open)

    def _bind(self, endpoint: Endpoint) -> Listener:
        config, network = self._config, self._environment.network
        listener = Listener(
            self._loop,
            _NotYet(),
            name=endpoint.listener,
            max_frame_bytes=config.socket_request_max_bytes,
            scratch=self._scratch,
            quota=self.quota,
            budget=self._budget,
        )
        try:
            sock = network.listen(endpoint.host, endpoint.port, socket_options(config))
        except OSError as error:
            raise port_taken(endpoint.host, endpoint.port, error, network) from error
        port = listener.attach(sock)
        self.open.append(listener)
        self.addresses[endpoint.listener] = (self._advertised_host(endpoint), port)
        return listener

    def _advertised_host(self, endpoint: Endpoint) -> str:
        for advertised in self._config.advertised_endpoints:
            if advertised.listener == endpoint.listener and advertised.host:
                return advertised.host
        return endpoint.host or self._own_host_name

    @cached_property
    def _own_host_name(self) -> str:
        return self._environment.network.host_name()

    @property
    def advertised(self) -> dict[str, tuple[str, int]]:
        """Where clients are told to connect, by name; the bound port where none is set."""
        told = {}
        for one in self._config.advertised_endpoints:
            host, port = self.addresses[one.listener]
            told[one.listener] = (host, one.port or port)
        return told

    def serve(self, prepare: Callable[[Listener], None]) -> None:
        """Let prepare give each listener who answers, those that are added later too."""
        self._prepare = prepare
        for listener in self.open:
            prepare(listener)

    def start(self) -> None:
        """Begin to accept."""
        self._is_started = True
        for listener in self.open:
            listener.start()

    def apply(self, config: BrokerConfig) -> None:
        """Open and close listeners by name, and let changed limits act."""
        wanted = {endpoint.listener: endpoint for endpoint in config.endpoints}
        for listener in [one for one in self.open if one.name not in wanted]:
            self.open.remove(listener)
            del self.addresses[listener.name]
            listener.close()
            log.info("listener %s closed", listener.name, extra={"event": "listener.closed"})
        for name, endpoint in wanted.items():
            if name not in self.addresses:
                self._add(endpoint)
        limit_connections(config, self._environment, self.quota, self.open)

    def _add(self, endpoint: Endpoint) -> None:
        try:
            listener = self._bind(endpoint)
        except PortTaken as error:  # what is stored stays, and holds from the next start on
            event = {"event": "listener.failed"}
            log.error("listener %s: %s", endpoint.listener, error, extra=event)  # noqa: TRY400 - the text says all
            return
        if self._prepare is not None:
            self._prepare(listener)
        if self._is_started:
            listener.start()
        event = {"event": "listener.open"}
        address = (listener.name, *self.addresses[listener.name])
        log.info("listening on %s://%s:%d", *address, extra=event)

    def sweep(self, now_ms: int, max_idle_ms: int) -> None:
        """Close silent and trickling connections."""
        for listener in self.open:
            listener.sweep(now_ms, max_idle_ms)

    def stop_accepting(self) -> None:
        """Accept no more connections; open ones stay."""
        for listener in self.open:
            listener.stop_accepting()

    def close(self) -> None:
        """Close all sockets."""
        for listener in self.open:
            listener.close()


class _NotYet:
    """Stands for the dispatcher until the node is open; nothing is accepted before."""

    def handle_frame(self, connection: Any, frame: memoryview) -> None:
        """Never called."""
        raise NotImplementedError

    def connection_closed(self, connection: Any) -> None:
        """Never called."""
