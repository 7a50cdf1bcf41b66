"""The start of a node: connection limits, the error for a taken port, banner, log lines.

Kafka: SocketServer's settings; its start prints a few hundred log lines; the first lines of
KafkaRaftServer, LogManager and SocketServer.
"""

from __future__ import annotations

import logging
import platform
from typing import TYPE_CHECKING, NamedTuple

from ottla._version import __version__
from ottla.network.limits import FrameBudget
from ottla.network.server import close_excess
from ottla.records.compiled import NOT_COMPILED, uncompiled_modules
from ottla.server.node.dynamic_settings import address_limits, listener_limit
from ottla.server.system.environment import SocketOptions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig, ListenerEndpoint
    from ottla.network.limits import ConnectionQuota
    from ottla.network.server import Listener
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.storage.directories.loader import LoadProgress
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log_set.log_set import LogSet

PROTOCOL = "Apache Kafka protocol 4.3"


RESERVED_DESCRIPTORS = 2000
"""Reserved for files and peers: connections must not use them up (at most half of the limit)."""


def frame_budget(config: BrokerConfig, memory_bytes: int) -> FrameBudget:
    """Return the memory for unfinished frames: the setting, else a quarter of the memory.

    One frame always fits, however small the memory.
    """
    configured: int = config.queued_max_request_bytes
    limit = configured if configured > 0 else memory_bytes // 4
    return FrameBudget(max(limit, config.socket_request_max_bytes))


def socket_options(config: BrokerConfig) -> SocketOptions:
    """Return backlog and buffers of listening sockets.

    Buffers are set only where the configuration sets them: Kafka's default of 100 KB would keep
    the system from giving fast connections more.
    """

    def given(name: str) -> int:
        return int(config.value(name)) if name in config.given else -1

    return SocketOptions(
        config.socket_listen_backlog_size,
        send_bytes=given("socket.send.buffer.bytes"),
        receive_bytes=given("socket.receive.buffer.bytes"),
    )


class ConnectionQuotas(NamedTuple):
    """The connection counts of a node: of its broker's listeners and of its controller's."""

    brokers: ConnectionQuota
    controllers: ConnectionQuota

    def of(self, config: BrokerConfig, listener: str) -> ConnectionQuota:
        """Return the one that counts the connections of a listener."""
        is_controller = listener in controller_listeners(config)
        return self.controllers if is_controller else self.brokers


def controller_listeners(config: BrokerConfig) -> set[str]:
    """Return the names of the listeners of controllers."""
    return {name.upper() for name in config.controller_listener_names or ()}


def protected_listener(config: BrokerConfig) -> str | None:
    """Return the listener of other brokers, None where clients use the same one."""
    names = {endpoint.listener for endpoint in config.endpoints} - controller_listeners(config)
    name = config.inter_broker_endpoint_name
    return name if len(names) > 1 and name in names else None


def limit_connections(
    config: BrokerConfig,
    descriptors: int,
    addresses: Mapping[str, Collection[str]],
    quotas: ConnectionQuotas,
    listeners: Sequence[Listener],
) -> None:
    """Apply max.connections*, within the limit on descriptors; addresses are those of names.

    A controller has a quarter of the descriptors. Of excess connections those idle longest are
    closed, as in Kafka, but none between nodes.
    """
    possible = max(descriptors - RESERVED_DESCRIPTORS, descriptors // 2)
    configured: int = config.max_connections
    limit = configured if descriptors < 0 else min(configured, possible)
    by_address = config.max_connections_per_ip, address_limits(config, addresses)
    of_controllers = limit if descriptors < 0 else min(limit, descriptors // 4)
    quotas.controllers.change(of_controllers, *by_address)
    quotas.brokers.change(limit, *by_address)
    for listener in listeners:
        listener.limit(listener_limit(config, listener.name))
    clients = clients_listeners(config, listeners)
    excess = quotas.brokers.count - limit
    connections = [connection for listener in clients for connection in listener.connections]
    close_excess(connections, max(len(connections) - excess, 0))


def clients_listeners(config: BrokerConfig, listeners: Sequence[Listener]) -> list[Listener]:
    """Return the broker's listeners without the one that is for other brokers only."""
    others = {*controller_listeners(config), protected_listener(config)}
    return [listener for listener in listeners if listener.name not in others]


def own_ports(config: BrokerConfig) -> set[int]:
    """Return the ports that the node's settings give to its listeners."""
    ports = {endpoint.port for endpoint in config.endpoints}
    metrics = config.own.address
    return ports if metrics is None else {*ports, metrics.port}


def listeners_on(config: BrokerConfig, moved: ListenerEndpoint, port: int) -> list[str]:
    """Return `listeners`, and `advertised.listeners` if it is given, with one port changed."""

    def text(endpoints: Iterable[ListenerEndpoint]) -> str:
        return ",".join(
            str(endpoint._replace(port=port) if endpoint.listener == moved.listener else endpoint)
            for endpoint in endpoints
        )

    found = [f"listeners={text(config.endpoints)}"]
    if config.given.get("advertised.listeners"):
        found.append(f"advertised.listeners={text(config.advertised_endpoints)}")
    return found


def _speed_note() -> str:
    return ", not compiled: slower" if uncompiled_modules() else ""


class Banner(NamedTuple):
    """The six lines at most that a start prints; everything else is a log line."""

    node_id: int
    cluster_id: str
    bootstrap: str
    data_directory: str
    is_new: bool
    topic_count: int
    metrics_url: str | None = None
    is_broker: bool = True
    is_plain: bool = True
    """Whether the address takes clients without TLS and login."""

    def lines(self) -> list[str]:
        """Return the lines; the third holds the address that clients take."""
        state = "new" if self.is_new else f"opened, {_count(self.topic_count, 'topic')}"
        if not self.is_broker:
            state = "new" if self.is_new else "opened"
        lines = [
            f"Ottla {__version__} ({PROTOCOL}){_speed_note()}",
            f"node      {self.node_id}, cluster {self.cluster_id}",
            f"bootstrap {self.bootstrap}",
            f"data      {self.data_directory} ({state})",
        ]
        if self.metrics_url is not None:
            lines.append(f"metrics   {self.metrics_url}")
        return [*lines, f"next      {self._next()}"]

    def _next(self) -> str:
        """Return a command that works at the address."""
        settings = "" if self.is_plain else " --command-config FILE"
        if not self.is_broker:
            place = f"--bootstrap-controller {self.bootstrap}{settings}"
            return f"ottla metadata-quorum {place} describe --status"
        action = "--describe" if self.topic_count else "--create --topic events"
        return f"ottla topics --bootstrap-server {self.bootstrap}{settings} {action}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


log = logging.getLogger("ottla.node")
PROGRESS_INTERVAL_MS = 5000


def log_starting(config: BrokerConfig) -> None:
    """Write the version and settings of the node, and a warning without compiled modules."""
    is_fast = not uncompiled_modules()
    log.info(
        "starting Ottla %s (%s) on Python %s: node %d, roles %s, log directories %s",
        __version__,
        "compiled" if is_fast else "not compiled",
        platform.python_version(),
        config.node_id,
        ",".join(config.process_roles),
        ", ".join(config.data_directories),
        extra={"event": "node.starting"},
    )
    if not is_fast:
        log.warning(NOT_COMPILED, extra={"event": "node.not_compiled"})


class LoadReport:
    """Writes the progress of loading logs every few seconds, until it is stopped."""

    def __init__(self, loads: Sequence[LoadProgress], clock: Clock, timer: TimingWheel) -> None:
        self._loads = loads
        self._clock = clock
        self._timer = timer
        self._begin_ms = clock.monotonic_ms()
        self._plan()

    def _plan(self) -> None:
        due_ms = self._clock.monotonic_ms() + PROGRESS_INTERVAL_MS
        self._task = self._timer.add(due_ms, self._write)

    def _write(self, now_ms: int) -> None:
        opened = sum(load.opened_count for load in self._loads)
        segments = [
            f", {load.segment_count} segments to read in the current one"
            if load.segment_count > 1
            else ""
            for load in self._loads
        ]
        remaining = "; ".join(
            f"{load.remaining_count} remain in {load.path}{segments_left}"
            for load, segments_left in zip(self._loads, segments, strict=True)
            if load.remaining_count
        )
        elapsed_s = (now_ms - self._begin_ms) // 1000
        text = "loading logs: %d are open after %d s; %s"
        log.info(text, opened, elapsed_s, remaining, extra={"event": "logs.loading"})
        self._plan()

    def stop(self) -> None:
        """Write no more."""
        self._task.cancel()


def log_recovered(log_dirs: Iterable[LogDirectory], logs: LogSet, elapsed_ms: int) -> None:
    """Write the count of loaded logs, and the directories that were not closed cleanly."""
    for log_dir in log_dirs:
        is_unclean = log_dir.is_online and not log_dir.had_clean_shutdown
        if is_unclean and any(logs.table.logs_in(log_dir)):
            text = "log directory %s was not closed cleanly: its logs were checked and recovered"
            log.info(text, log_dir.path, extra={"event": "log_dir.recovered"})
    text = "loaded %d logs in %d ms; %d of them are damaged and offline"
    extra = {"event": "logs.loaded"}
    log.info(text, len(logs), elapsed_ms, len(logs.broken), extra=extra)


def log_listening(addresses: Mapping[str, tuple[str, int]], metrics_url: str | None) -> None:
    """Write one line for each listener."""
    extra = {"event": "listener.open"}
    for name, (host, port) in addresses.items():
        log.info("listening on %s://%s:%d", name, host, port, extra=extra)
    if metrics_url is not None:
        log.info("metrics and probes at %s", metrics_url, extra=extra)
