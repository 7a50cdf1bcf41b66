"""The sans-IO core of every client: connections, reconnects, metadata.

Kafka: org.apache.kafka.clients.NetworkClient, .ClusterConnectionStates, .ClientUtils.

The façade passes events (`connected`, `received`, `disconnected`), and calls `poll` after them and
at `next_deadline_ms`; the core calls its `Transport`. State machines (sender, fetcher, group
membership) are polled from here and send requests with `send`. A node has one connection per
purpose: a broker processes the requests of a connection one at a time, so a long poll (Fetch,
JoinGroup) must not share a connection with heartbeats or commits.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ottla.clients.connection_errors import with_hint
from ottla.clients.metadata import ClusterMetadata
from ottla.clients.metrics import ClientMetrics
from ottla.clients.outages import ClientTrace, Outages
from ottla.diagnosis.advice import Situation
from ottla.errors import (
    ClosedError,
    ConfigError,
    CorruptMessage,
    ErrorCode,
    KafkaError,
    SslAuthenticationError,
    TimeoutError,  # noqa: A004 - Kafka's, also a builtin one
)
from ottla.network.request_channel import Channel, ChannelState
from ottla.purgatory.backoff import Backoff
from ottla.purgatory.pending import Pending
from ottla.types import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clients.environment import RandomSource
    from ottla.clients.settings import ValidatedSettings
    from ottla.network.request_channel import Login
    from ottla.protocol.schema import Request
    from ottla.types import SendItem

T = TypeVar("T")
ANY_NODE = -1_000_000
_NEVER = 1 << 62
FATAL_CODES = frozenset(
    {
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
    }
)
CONNECTION_CODES = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
CLOSED_TEXTS = {
    "producer": "Cannot perform operation after producer has been closed",
    "consumer": "This consumer has already been closed.",
    "admin-client": "Cannot accept new calls when AdminClient is closing.",
}
_ADDRESS = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]+?)\]?:([0-9]{1,9})")


class ConnectionKey(NamedTuple):
    """The key of a connection: node and purpose."""

    node_id: int
    purpose: str = ""


class Transport(Protocol):
    """The core's interface to the sockets."""

    def open(self, key: ConnectionKey, host: str, port: int) -> None:
        """Start connecting; `connected` or `disconnected` follows."""

    def write(self, key: ConnectionKey, buffers: list[SendItem]) -> None:
        """Send buffers in order."""

    def close(self, key: ConnectionKey) -> None:
        """Close a connection; no event follows."""

    def wake(self) -> None:
        """Schedule a call of `poll`."""


class Machine(Protocol):
    """A state machine driven by time and responses."""

    def poll(self, now_ms: int) -> None:
        """Perform the actions that are due."""

    def next_deadline_ms(self) -> int | None:
        """Return when the next poll is due without other events."""


class ClientCall(Machine, Protocol[T]):
    """A machine with a result."""

    @property
    def result(self) -> Pending[T]:
        """The result; the machine is no longer polled once it is done."""


class Client:
    """Connections to all brokers, by node id and purpose, and the metadata they share."""

    def __init__(
        self,
        settings: ValidatedSettings,
        transport: Transport,
        *,
        rng: RandomSource,
        login: Callable[[str], Login] | None = None,
        metadata: ClusterMetadata | None = None,
    ) -> None:
        self.settings = settings
        self.transport = transport
        self.bootstrap = _bootstrap_nodes(settings.bootstrap_servers)
        self.metadata = metadata or ClusterMetadata(
            max_age_ms=settings.metadata_max_age_ms,
            # metadata requests of producers create missing topics, consumers' by setting
            allow_auto_create=bool(
                getattr(settings, "allow_auto_create_topics", settings.kind == "producer")
            ),
        )
        self.now_ms = 0
        self.metrics = ClientMetrics(settings)
        self.machines: list[Machine] = []
        self._calls: dict[ClientCall[Any], None] = {}
        self.fatal: KafkaError | None = None
        self.backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng)
        self._reconnect = Backoff(
            settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, rng
        )
        self.rng = rng
        self._login = login
        self._connections: dict[ConnectionKey, _NodeConnection] = {}
        self._connections_due_ms = 0
        """When a connection must be opened or closed, or a request expires, at the earliest."""
        self.trace = ClientTrace(settings)
        self.outages = Outages(self.trace)
        self._answered_addresses: set[str] = set()
        self._rotation = 0
        self._is_polling = False
        self.closed = False
        group = f"{settings.kind}-metrics"
        self.metrics.gauge(group, "connection-count", lambda _: self.connection_count())

    def connection_count(self) -> float:
        """Return the number of established connections."""
        established = (ChannelState.NEGOTIATING, ChannelState.READY)
        states = [connection.channel.state for connection in self._connections.values()]
        return float(sum(state in established for state in states))

    @property
    def has_ready_connection(self) -> bool:
        """Whether a node has answered on a connection that is open: versions agreed, logged in."""
        return any(connection.channel.ready for connection in self._connections.values())

    @property
    def all_in_flight(self) -> int:
        """The number of unanswered requests on all connections."""
        return sum(connection.channel.in_flight for connection in self._connections.values())

    def register(self, machine: Machine) -> None:
        """Poll a state machine from now on."""
        self.machines = [*self.machines, machine]

    def unregister(self, machine: Machine) -> None:
        """Stop polling a state machine; callable while the machines are polled."""
        self.machines = [one for one in self.machines if one is not machine]

    def start(self, call: ClientCall[T]) -> Pending[T]:
        """Poll a machine until its result is done; `close` fails it with ClosedError."""
        if self.closed:
            call.result.fail(self.closed_error())
            return call.result
        self._calls[call] = None
        self.register(call)
        call.result.on_done(lambda _: self.stop(call))
        self.transport.wake()
        return call.result

    def stop(self, call: ClientCall[Any]) -> None:
        """Stop polling a machine whose result is done or no longer waited for."""
        self._calls.pop(call, None)
        self.unregister(call)

    # ------------------------------------------------------------ sending

    def send(
        self,
        node_id: int,
        request: Request,
        *,
        purpose: str = "",
        timeout_ms: int | None = None,
        expects_response: bool = True,
        max_version: int | None = None,
        node: Node | None = None,
    ) -> Pending[Any]:
        """Send a request to a node (ANY_NODE: the least loaded); see Channel.submit for errors.

        `node` gives the address of a node that is not in the metadata; else BROKER_NOT_AVAILABLE.
        """
        if self.closed:
            return Pending.failed(self.closed_error())
        if node_id == ANY_NODE:
            node_id = self._choose_node()
        key = ConnectionKey(node_id, purpose)
        connection = self._connection(key, node)
        if connection is None:
            self.metadata.mark_stale()
            text = f"node {node_id} is unknown"
            return Pending.failed(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text))
        result = connection.channel.submit(
            request,
            now_ms=self.now_ms,
            timeout_ms=self.settings.request_timeout_ms if timeout_ms is None else timeout_ms,
            expects_response=expects_response,
            max_version=max_version,
        )
        if not self._is_polling or result.done:  # a poll writes what was sent during it
            self._connections_due_ms = 0
            self.transport.wake()
        return result

    def _find(self, node_id: int, purpose: str) -> _NodeConnection | None:
        key: Any = (node_id, purpose)  # equals the ConnectionKey, and costs less
        return self._connections.get(key)

    def in_flight(self, node_id: int, purpose: str = "") -> int:
        """Return the number of unanswered requests on a connection."""
        connection = self._find(node_id, purpose)
        return 0 if connection is None else connection.channel.in_flight

    def is_available(self, node_id: int, purpose: str = "") -> bool:
        """Whether a request to the node can be sent now: no backoff, no throttle."""
        connection = self._find(node_id, purpose)
        if connection is None:
            return True
        if connection.channel.throttled_until_ms > self.now_ms:
            return False
        return connection.is_open or connection.open_at_ms <= self.now_ms

    def is_ready(self, node_id: int, purpose: str = "") -> bool:
        """Whether a request to the node leaves at once: connected, logged in."""
        connection = self._find(node_id, purpose)
        return connection is not None and connection.channel.ready

    def feature_level(self, node_id: int, purpose: str, name: str) -> int:
        """Return a feature's finalized level as a connected node reported it; 0 if unknown."""
        connection = self._find(node_id, purpose)
        features = None if connection is None else connection.channel.features
        if features is None:
            return 0
        found = (feature for feature in features.finalized_features if feature.name == name)
        return next((feature.max_version_level for feature in found), 0)

    def available_at_ms(self, node_id: int, purpose: str = "") -> int:
        """Return when the backoff and throttle of a connection end."""
        connection = self._find(node_id, purpose)
        if connection is None:
            return 0
        return max(connection.channel.throttled_until_ms, connection.open_at_ms)

    def _connection(
        self, key: ConnectionKey, address: Node | None = None
    ) -> _NodeConnection | None:
        connection = self._connections.get(key)
        node = self._node(key.node_id) or address
        if connection is None:
            if node is None:
                return None
            connection = self._connections[key] = _NodeConnection(
                node, self._new_channel(key, node)
            )
        elif connection.channel.state is ChannelState.CLOSED:
            connection.node = node or connection.node
            connection.channel = self._new_channel(key, connection.node)
        if not connection.is_open and connection.open_at_ms <= self.now_ms:
            self._open(key, connection)
        return connection

    def _new_channel(self, key: ConnectionKey, node: Node) -> Channel:
        meter = self.metrics.meter(key.node_id, key.purpose)
        login = None if self._login is None else partial(self._login, node.host)
        return Channel(self.settings.client_id, login=login, meter=meter)

    def _node(self, node_id: int) -> Node | None:
        known = self.metadata.brokers.get(node_id)
        if known is not None:
            return known
        index = -1 - node_id
        return self.bootstrap[index] if 0 <= index < len(self.bootstrap) else None

    def _open(self, key: ConnectionKey, connection: _NodeConnection) -> None:
        connection.is_open, connection.has_answered = True, False
        connection.setup_deadline_ms = (
            self.now_ms + self.settings.socket_connection_setup_timeout_ms
        )
        self.transport.open(key, connection.node.host, connection.node.port)

    def _choose_node(self) -> int:
        """Rotate over the ready connections with the fewest requests; without one, over all nodes.

        Every fifth choice is made of all nodes: the only connected one may know old metadata.
        """
        self._rotation += 1
        ready = [
            (connection.channel.in_flight, key.node_id)
            for key, connection in self._connections.items()
            if key.purpose == "" and connection.channel.ready
        ]
        if ready and self._rotation % 5:
            least = min(ready)[0]
            places = [node_id for in_flight, node_id in ready if in_flight == least]
            return places[self._rotation % len(places)]
        places = [*self.metadata.brokers, *(node.node_id for node in self.bootstrap)]
        turned = [places[(self._rotation + i) % len(places)] for i in range(len(places))]
        return next((place for place in turned if self.is_available(place)), turned[0])

    # ------------------------------------------------------------ events

    def connected(self, key: ConnectionKey, now_ms: int) -> None:
        """Handle an established connection."""
        self.now_ms = now_ms
        connection = self._connections.get(key)
        if connection is not None and connection.is_open:
            self.metrics.opened.record(1, now_ms)
            self.trace.add("connection", "connected to %s", connection.address)
            connection.channel.connected(now_ms, timeout_ms=self.settings.request_timeout_ms)

    def received(self, key: ConnectionKey, frame: memoryview, now_ms: int) -> None:
        """Handle a response frame."""
        self.now_ms = now_ms
        connection = self._connections.get(key)
        if connection is None or not connection.is_open:
            return
        was_ready = connection.channel.ready
        try:
            connection.channel.receive(frame, now_ms)
        except CorruptMessage as error:
            self._drop(key, connection, error)
            return
        if was_ready and not connection.has_answered:
            connection.has_answered = True
            self._answered_addresses.add(connection.address)
            self.outages.resolve(connection.address, now_ms)
        if connection.channel.state is ChannelState.CLOSED:  # the login was rejected
            self._drop(key, connection, None)
        elif connection.failures and connection.channel.ready:
            connection.failures = 0
            self.fatal = None  # the credentials were accepted

    def disconnected(self, key: ConnectionKey, reason: KafkaError | str, now_ms: int) -> None:
        """Handle a lost or failed connection."""
        self.now_ms = now_ms
        connection = self._connections.get(key)
        if connection is None or not connection.is_open:
            return
        if not isinstance(reason, KafkaError):
            reason = KafkaError(ErrorCode.NETWORK_EXCEPTION, reason)
        self._lost(connection, reason)

    def _drop(
        self, key: ConnectionKey, connection: _NodeConnection, error: Exception | None
    ) -> None:
        self.transport.close(key)
        self._lost(connection, error)

    def _lost(self, connection: _NodeConnection, error: Exception | None) -> None:
        connection.is_open = False
        self._connections_due_ms = 0
        if connection.channel.state is not ChannelState.CONNECTING:
            self.metrics.closed.record(1, self.now_ms)
        if connection.node.node_id >= 0:
            self.metadata.mark_stale()
        connection.failures += 1
        connection.open_at_ms = self.now_ms + self._reconnect.after(connection.failures)
        failure = connection.channel.failure or error
        if isinstance(failure, SslAuthenticationError):
            failure = error = SslAuthenticationError(f"{connection.address}: {failure.message}")
            self.fatal = failure
        elif isinstance(failure, KafkaError) and failure.code in FATAL_CODES:
            self.fatal = failure
        self.trace.add("connection", "connection to %s ended: %s", connection.address, failure)
        self._report_loss(connection, failure)
        connection.channel.closed(error)

    def _report_loss(self, connection: _NodeConnection, failure: Exception | None) -> None:
        """Log what is more than an idle connection that the broker has closed."""
        channel, address = connection.channel, connection.address
        was_ready, was_connecting = channel.ready, channel.state is ChannelState.CONNECTING
        if was_ready and (connection.has_answered or not channel.in_flight):
            return
        is_known = address in self._answered_addresses
        cause = str(failure or "the connection was lost").removeprefix(f"{address}: ")
        if self.fatal is failure or is_known:
            pass
        elif was_connecting and connection.node.node_id >= 0:
            cause = with_hint(cause, Situation.ADVERTISED_ADDRESS_FAILS)
        elif was_connecting:
            cause = with_hint(cause, Situation.NOTHING_LISTENS)
        elif was_ready and self._login is None:
            cause = with_hint(cause, Situation.CLOSED_AFTER_FIRST_REQUEST)
        elif not self.settings.security_protocol.endswith("SSL"):
            cause = with_hint(cause, Situation.CLOSED_BEFORE_FIRST_RESPONSE)
        is_final = self.fatal is not None and self.fatal is failure
        self.outages.report(address, cause, self.now_ms, is_final=is_final)

    # ------------------------------------------------------------ time

    def advance(self, now_ms: int) -> None:
        """Set the time of requests that are sent before the next poll."""
        self.now_ms = now_ms

    def poll(self, now_ms: int) -> None:
        """Perform the actions that are due, then pass outgoing buffers to the transport."""
        self.now_ms = now_ms
        if self.closed:
            return
        self._is_polling = True
        try:
            if now_ms >= self._connections_due_ms:
                for key, connection in list(self._connections.items()):
                    self._poll_connection(key, connection)
            self._refresh_metadata()
            for machine in self.machines:
                machine.poll(now_ms)
        finally:
            self._is_polling = False
        for key, channel in [
            (key, connection.channel)
            for key, connection in self._connections.items()
            if connection.channel.outgoing
        ]:
            if channel.throttled_until_ms <= now_ms:
                buffers, channel.outgoing = channel.outgoing, []
                self.transport.write(key, buffers)

    def _poll_connection(self, key: ConnectionKey, connection: _NodeConnection) -> None:
        channel = connection.channel
        if connection.is_open:
            connecting = channel.state is ChannelState.CONNECTING
            if connecting and connection.setup_deadline_ms <= self.now_ms:
                reason = f"no connection to {connection.address} in time"
                self._drop(key, connection, KafkaError(ErrorCode.NETWORK_EXCEPTION, reason))
            elif channel.in_flight:
                if channel.expire(self.now_ms):
                    self.outages.report(connection.address, "no response in time", self.now_ms)
                    self._drop(key, connection, None)
            elif self._is_idle(channel) and channel.ready:
                self.transport.close(key)
                self.metrics.closed.record(1, self.now_ms)
                del self._connections[key]
                channel.closed()
        else:
            channel.expire(self.now_ms)
            if channel.in_flight and connection.open_at_ms <= self.now_ms:
                self._open(key, connection)

    def _is_idle(self, channel: Channel) -> bool:
        limit_ms: int = self.settings.connections_max_idle_ms
        return 0 <= limit_ms < self.now_ms - channel.last_used_ms

    def next_deadline_ms(self) -> int | None:
        """Return the latest time of the next `poll`; also note when a connection needs it."""
        earliest_ms = self._machines_due_ms()
        connections_due_ms = _NEVER
        idle_ms: int = self.settings.connections_max_idle_ms
        for connection in self._connections.values():
            channel = connection.channel
            due_ms = channel.next_deadline_ms()
            if due_ms is not None:
                if channel.state is ChannelState.CONNECTING:
                    due_ms = min(due_ms, connection.opening_due_ms)
                earliest_ms = min(earliest_ms, due_ms)
            elif idle_ms >= 0:  # closed by the first poll after this
                due_ms = channel.last_used_ms + idle_ms + 1
            if due_ms is not None and due_ms < connections_due_ms:
                connections_due_ms = due_ms
            if channel.outgoing and channel.throttled_until_ms < earliest_ms:
                earliest_ms = channel.throttled_until_ms
        self._connections_due_ms = connections_due_ms
        return None if earliest_ms == _NEVER else earliest_ms

    def _machines_due_ms(self) -> int:
        metadata = self.metadata
        earliest_ms = _NEVER if metadata.is_refreshing else metadata.refresh_due_ms()
        for machine in self.machines:
            due_ms = machine.next_deadline_ms()
            if due_ms is not None and due_ms < earliest_ms:
                earliest_ms = due_ms
        return earliest_ms

    # ------------------------------------------------------------ metadata

    def refresh(self, *, without_delay: bool = False) -> Pending[None]:
        """Request a metadata refresh; completes with the response to a request sent after now.

        At most one request per retry.backoff.ms is sent; without_delay, after a complete response,
        the next one is sent at once.
        """
        pending = self.metadata.refresh(self.now_ms, without_delay=without_delay)
        self.transport.wake()
        return pending

    def _refresh_metadata(self) -> None:
        metadata = self.metadata
        if metadata.is_refreshing or metadata.refresh_due_ms() > self.now_ms or self.closed:
            return
        request = metadata.next_request(self.now_ms + self.settings.retry_backoff_ms)
        self.send(ANY_NODE, request).on_done(self._refreshed)

    def _refreshed(self, done: Pending[Any]) -> None:
        if done.error is not None:
            self.metadata.refresh_failed(
                done.error, self.now_ms, self.backoff, final=self.pending_error()
            )
            return
        self.metadata.is_refreshing = self.metadata.is_failing = False
        self.metadata.update(done.value, self.now_ms)
        self.trace.metadata_updated(self.metadata)
        self.outages.report_topics(self.metadata.topics, self.now_ms)
        self.metadata.refreshed(self.now_ms, self.backoff)

    def pending_error(self) -> KafkaError | None:
        """Return the error that ends waiting, None without one: login or TLS were rejected.

        An outage is none: clients wait for its end, and only calls with a timeout stop with it.
        """
        return self.fatal

    def timeout_error(self, text: str, last: KafkaError | None = None) -> TimeoutError:
        """Return the error of a call whose time is up: likely cause, or the last failure."""
        cause, code = self.outages.causes(), ErrorCode.REQUEST_TIMED_OUT
        if not self.is_reachable:
            cause = self.unreachable().message
        elif last is not None:
            cause = cause or f"{last.code.name}: {last.message}"
            code = code if last.code in CONNECTION_CODES else last.code
        error = TimeoutError(f"{text}: {cause}" if cause else text, code)
        error.__cause__ = last
        return error

    def unreachable(self) -> TimeoutError:
        """Return the error for an unreachable cluster."""
        return unreachable(self.bootstrap, self.outages.causes() or self.metadata.last_failure)

    def closed_error(self) -> ClosedError:
        """Return the error of calls after `close`."""
        return ClosedError(CLOSED_TEXTS[self.settings.kind])

    @property
    def is_reachable(self) -> bool:
        """Whether the cluster has responded, and the last refresh succeeded."""
        return self.metadata.updated_ms >= 0 and not self.metadata.is_failing

    def close(self) -> None:
        """Close every connection; pending requests fail with ClosedError."""
        self.closed = True
        for key, connection in list(self._connections.items()):
            if connection.is_open:
                self.transport.close(key)
            connection.is_open = False
            connection.channel.closed(self.closed_error())
        self._connections.clear()
        self.metadata.fail_waiting(self.closed_error())
        for call in list(self._calls):
            call.result.fail(self.closed_error())


def parse_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT, [V6]:PORT or PROTOCOL://HOST:PORT; raise ConfigError."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"Invalid url in bootstrap.servers: {text}")
    host, port = found[1], int(found[2])
    if not 0 < port < 65536:
        raise ConfigError(f"Invalid port in bootstrap.servers: {text}")
    return host, port


def _bootstrap_nodes(servers: Iterable[str]) -> list[Node]:
    """Return the bootstrap servers as nodes, with ids from -1 downwards."""
    nodes = [Node(-1 - index, *parse_address(text)) for index, text in enumerate(servers)]
    if not nodes:
        raise ConfigError(
            "bootstrap.servers is empty; for example bootstrap_servers='localhost:9092'",
        )
    return nodes


def unreachable(nodes: Iterable[Node], reason: str = "") -> TimeoutError:
    """Return the error for a cluster that cannot be reached."""
    places = ", ".join(f"{node.host}:{node.port}" for node in nodes)
    why = f" ({reason})" if reason else ""
    return TimeoutError(f"cannot reach {places}{why}")


class _NodeConnection:
    """The state of one connection across reconnects."""

    __slots__ = (
        "channel",
        "failures",
        "has_answered",
        "is_open",
        "node",
        "open_at_ms",
        "setup_deadline_ms",
    )

    def __init__(self, node: Node, channel: Channel) -> None:
        self.node = node
        self.channel = channel
        self.failures = 0
        self.has_answered = False  # a request, since it was opened
        self.is_open = False  # the transport opens it or has it open
        self.open_at_ms = 0
        self.setup_deadline_ms = 0

    @property
    def address(self) -> str:
        """The address of the node."""
        return f"{self.node.host}:{self.node.port}"

    @property
    def opening_due_ms(self) -> int:
        """When it must be open, or may be opened again."""
        return self.setup_deadline_ms if self.is_open else self.open_at_ms
