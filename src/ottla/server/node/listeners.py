"""A node's listening sockets: bound before anything else, opened and closed as settings change.

As in Kafka a listener is identified by its name: a remaining one keeps its port until the next
start, and an added one is advertised from the next start on.

Kafka: kafka.network.SocketServer, kafka.server.DynamicListenerConfig.
"""

from __future__ import annotations

import logging
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.network.limits import ConnectionQuota
from ottla.network.server import SCRATCH_BYTES, Listener, close_idlest
from ottla.server.node.dynamic_settings import limited_names
from ottla.server.node.startup import (
    ConnectionQuotas,
    clients_listeners,
    frame_budget,
    limit_connections,
    listeners_on,
    own_ports,
    protected_listener,
    socket_options,
)
from ottla.server.system.ports import PortTaken, port_taken

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Collection

    from ottla.config.broker import BrokerConfig
    from ottla.config.broker.endpoints import ListenerEndpoint
    from ottla.metrics.ledger import Ledger
    from ottla.network.connection import RequestHandler
    from ottla.network.limits import ConnectionPace
    from ottla.network.server import ListenerSecurity
    from ottla.server.system.environment import Environment, RunInWorker

log = logging.getLogger("ottla.node")


class BoundPorts:
    """The listening sockets of a node, which accept nothing yet."""

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        """Bind every configured listener. Raises PortTaken."""
        self._config = config
        self._network = environment.network
        self.sockets: dict[str, socket.socket] = {}
        self.addresses: dict[str, tuple[str, int]] = {}
        """By listener: the advertised host and the bound port, for this machine."""
        try:
            for endpoint in config.endpoints:
                self.bind(endpoint)
        except BaseException:
            self.close()
            raise

    def bind(self, endpoint: ListenerEndpoint) -> socket.socket:
        """Bind one listener's port. Raises PortTaken."""
        host, port, network = endpoint.host, endpoint.port, self._network
        try:
            sock = network.listen(host, port, socket_options(self._config))
        except OSError as error:
            raise port_taken(
                host,
                port,
                error,
                network,
                setting="listeners",
                overrides=lambda port: listeners_on(self._config, endpoint, port),
                own_ports=own_ports(self._config),
            ) from error
        self.sockets[endpoint.listener] = sock
        self.addresses[endpoint.listener] = (self._advertised_host(endpoint), sock.getsockname()[1])
        return sock

    def _advertised_host(self, endpoint: ListenerEndpoint) -> str:
        for advertised in self._config.advertised_endpoints:
            if advertised.listener == endpoint.listener and advertised.host:
                return advertised.host
        return endpoint.host or self._own_host_name

    @cached_property
    def _own_host_name(self) -> str:
        return self._network.host_name()

    @property
    def advertised(self) -> dict[str, tuple[str, int]]:
        """Where clients connect, by name; the bound port where none is set."""
        found = {}
        for endpoint in self._config.advertised_endpoints:
            host, port = self.addresses[endpoint.listener]
            found[endpoint.listener] = (host, endpoint.port or port)
        return found

    @property
    def advertised_controllers(self) -> dict[str, tuple[str, int]]:
        """Where the other nodes reach this controller, by listener."""
        return {
            endpoint.listener: (
                endpoint.host or self._own_host_name,
                endpoint.port or self._bound(endpoint),
            )
            for endpoint in self._config.advertised_controller_endpoints
        }

    def _bound(self, endpoint: ListenerEndpoint) -> int:
        return self.addresses[endpoint.listener][1]

    def release(self, name: str) -> None:
        """Forget a listener that is closed."""
        del self.sockets[name], self.addresses[name]

    def close(self) -> None:
        """Close the sockets."""
        for sock in self.sockets.values():
            sock.close()


class ListenerRole(NamedTuple):
    """The request handler of a listener, its security, and its limit of accepted connections."""

    handler: RequestHandler
    pace: ConnectionPace | None
    security: ListenerSecurity | None = None


class NodeListeners:
    """`start`; then `apply` whenever settings have changed, `close` at the end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: BrokerConfig,
        environment: Environment,
        ports: BoundPorts,
        role_of: Callable[[str], ListenerRole],
        *,
        run_in_worker: RunInWorker,
    ) -> None:
        """role_of(name) is called for each listener, also for those that are added later.

        Workers resolve the names in max.connections.per.ip.overrides when settings change.
        """
        self.open: list[Listener] = []
        """The open listeners; the same list object while the node runs."""
        self.quotas = ConnectionQuotas(ConnectionQuota(), ConnectionQuota())
        self.quotas.brokers.close_idlest = self._close_idlest
        self._config = config
        self._ports = ports
        self._loop = loop
        self._network = environment.network
        self._addresses = self._resolved(limited_names(config))
        self._descriptors = environment.limits().descriptors
        self._role_of = role_of
        self._run_in_worker = run_in_worker
        self._max_frame_bytes = config.socket_request_max_bytes
        self._scratch = bytearray(SCRATCH_BYTES)
        self._budget = frame_budget(config, environment.limits().memory_bytes)
        self._started: set[str] = set()
        for name, sock in ports.sockets.items():
            self._open(name, sock)
        self._limit()

    def _limit(self) -> None:
        addresses = self._addresses
        for listener in self.open:
            listener.is_protected = listener.name == protected_listener(self._config)
        limit_connections(self._config, self._descriptors, addresses, self.quotas, self.open)

    def account_in(self, ledger: Ledger) -> None:
        """Register what is kept for clients."""
        ledger.register("unfinished_frames", self._budget.limit_bytes, self._budget.measure)

    @property
    def connection_count(self) -> int:
        """Connections that are open now."""
        return sum(quota.count for quota in self.quotas)

    def _close_idlest(self) -> None:
        close_idlest(clients_listeners(self._config, self.open))

    def _resolved(self, names: Collection[str]) -> dict[str, set[str]]:
        """Return the addresses of hosts; waits for the name server."""
        return {name: self._network.addresses_of(name) for name in names}

    def _open(self, name: str, sock: socket.socket) -> Listener:
        role = self._role_of(name)
        listener = Listener(
            self._loop,
            sock,
            role.handler,
            name=name,
            max_frame_bytes=self._max_frame_bytes,
            scratch=self._scratch,
            quota=self.quotas.of(self._config, name),
            budget=self._budget,
            pace=role.pace,
            security=role.security,
        )
        self.open.append(listener)
        return listener

    def start(self, names: Collection[str]) -> None:
        """Begin to accept on listeners that do not yet."""
        for listener in self.open:
            if listener.name in names and listener.name not in self._started:
                self._started.add(listener.name)
                listener.start()

    def exchange_handlers(self) -> None:
        """Replace the handlers by those that `role_of` returns now."""
        for listener in self.open:
            listener.serve(self._role_of(listener.name).handler)

    def apply(self, config: BrokerConfig) -> None:
        """Open and close listeners by name, and apply changed limits."""
        requested = {endpoint.listener: endpoint for endpoint in config.endpoints}
        for listener in [other for other in self.open if other.name not in requested]:
            self.open.remove(listener)
            self._ports.release(listener.name)
            self._started.discard(listener.name)
            listener.close()
            log.info("listener %s closed", listener.name, extra={"event": "listener.closed"})
        for name, endpoint in requested.items():
            if name not in self._ports.addresses:
                self._add(endpoint)
        self._config = config
        self._limit()
        names = limited_names(config)
        if names:
            self._run_in_worker(partial(self._resolved, names), self._limit_names)

    def _limit_names(self, found: dict[str, set[str]] | None, _error: Exception | None) -> None:
        """Apply the limits of names; without a result the last addresses stay in use."""
        if found is not None:
            self._addresses = found
            self._limit()

    def _add(self, endpoint: ListenerEndpoint) -> None:
        try:
            sock = self._ports.bind(endpoint)
        except PortTaken as error:  # the stored setting applies at the next start
            event = {"event": "listener.failed"}
            log.error("listener %s: %s", endpoint.listener, error, extra=event)  # noqa: TRY400 - the text says all
            return
        listener = self._open(endpoint.listener, sock)
        if self._started:
            self.start([listener.name])
        event = {"event": "listener.open"}
        address = (listener.name, *self._ports.addresses[listener.name])
        log.info("listening on %s://%s:%d", *address, extra=event)

    def sweep(self, now_ms: int, max_idle_ms: int) -> None:
        """Close idle and slow connections."""
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
