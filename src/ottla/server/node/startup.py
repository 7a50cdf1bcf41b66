"""What a start says: who holds a taken port, and the banner.

Kafka: nothing like it; its start is a few hundred log lines.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from errno import EADDRINUSE
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from ottla._version import __version__
from ottla.network.frame_budget import FrameBudget
from ottla.network.limits import ConnectionQuota
from ottla.protocol import walker
from ottla.records import scan
from ottla.server.node.dynamic_settings import address_limits, listener_limit

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ottla.config.broker import BrokerConfig
    from ottla.network.connection import Connection
    from ottla.network.server import Listener

PROTOCOL = "Apache Kafka protocol 4.3"


_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
RESERVED_DESCRIPTORS = 2000
"""Kept for files and for peers, so that connections never starve the log (fewer: half)."""


def raise_descriptor_limit() -> None:
    """Take as many descriptors as this process may have, as the JVM does for Kafka."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # an endless hard limit may be more than there are
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def frame_budget(config: BrokerConfig) -> FrameBudget:
    """Return what unfinished frames may take: the setting, else a quarter of the memory there is.

    One frame always fits, however small the memory.
    """
    wanted: int = config.queued_max_request_bytes
    limit = wanted if wanted > 0 else _memory_bytes() // 4
    return FrameBudget(max(limit, config.socket_request_max_bytes))


def socket_sizes(config: BrokerConfig) -> dict[str, int]:
    """Return backlog and buffers of listening sockets.

    Buffers are what somebody set: Kafka's default of 100 KB would keep the system from giving fast
    connections more.
    """
    sizes = {
        "send_bytes": "socket.send.buffer.bytes",
        "receive_bytes": "socket.receive.buffer.bytes",
    }
    given = {word: config.value(name) for word, name in sizes.items() if name in config.given}
    return {"backlog": config.socket_listen_backlog_size, **given}


def _memory_bytes() -> int:
    total: int = psutil.virtual_memory().total
    with suppress(OSError, ValueError):  # no limit on this group of processes, or none known
        return min(total, int(_MEMORY_LIMIT.read_text(encoding="ascii")))
    return total


def connection_quota(config: BrokerConfig) -> ConnectionQuota:
    """Return what max.connections* allow, within the process's limit on descriptors."""
    return ConnectionQuota(
        _max_connections(config), config.max_connections_per_ip, address_limits(config)
    )


def _max_connections(config: BrokerConfig) -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = max(limit - RESERVED_DESCRIPTORS, limit // 2)
    wanted: int = config.max_connections
    return wanted if limit < 0 else min(wanted, possible)


def limit_connections(
    config: BrokerConfig, quota: ConnectionQuota, listeners: Sequence[Listener]
) -> None:
    """Let limits that were changed act at once: those silent longest give way, as in Kafka."""
    most = _max_connections(config)
    quota.change(most, config.max_connections_per_ip, address_limits(config))
    for listener in listeners:
        listener.max_connections = listener_limit(config, listener.name)
        _close_excess(listener.connections, listener.max_connections)
    _close_excess([one for listener in listeners for one in listener.connections], most)


def _close_excess(connections: Collection[Connection], most: int) -> None:
    excess = len(connections) - most
    if excess > 0:
        for connection in sorted(connections, key=_last_active_ms)[:excess]:
            connection.close()


def _last_active_ms(connection: Connection) -> float:
    """Return since when it is silent, as far as was looked; one not looked at yet is the newest."""
    return connection.last_active_ms if connection.last_active_ms >= 0 else inf


class PortTaken(Exception):
    """A listener's port cannot be had; the text is one line with the reason and what to do."""


def holder_of_port(port: int) -> str | None:
    """Name the process that listens on a port: "pid 12 (java)"; None when it cannot be told."""
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return None
    for one in connections:
        if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port and one.pid:
            try:
                return f"pid {one.pid} ({psutil.Process(one.pid).name()})"
            except psutil.Error:
                return f"pid {one.pid}"
    return None


def port_taken(
    host: str, port: int, error: OSError, *, setting: str = "listeners=PLAINTEXT://"
) -> PortTaken:
    """Say in one line why a port cannot be had: by whom it is taken, and how to start on another.

    An address that is none of this machine's, or a port that needs a privilege, is nobody's.
    """
    shown = host or "0.0.0.0"  # noqa: S104 - only shown
    if error.errno != EADDRINUSE:
        name = setting.partition("=")[0]
        return PortTaken(f"cannot listen on {shown}:{port}, see {name}: {error.strerror}")
    holder = holder_of_port(port)
    who = f" by {holder}" if holder else f" ({error})"
    return PortTaken(
        f"port {port} on {shown} is taken{who}; "
        f"stop it or start with --override {setting}:{port + 1}"
    )


def _speed_note() -> str:
    """Say that the hot modules run uncompiled, where they do."""
    if all(not (module.__file__ or "").endswith(".py") for module in (scan, walker)):
        return ""
    return (
        ", not compiled: slower. With a C compiler: pip install --force-reinstall --no-deps ottla"
    )


class Banner(NamedTuple):
    """The six lines at most that a start prints; everything else is a log line."""

    node_id: int
    cluster_id: str
    bootstrap: str
    data_directory: str
    is_new: bool
    topic_count: int
    metrics_url: str | None = None

    def lines(self) -> list[str]:
        """Return the lines; the third holds the address that clients take."""
        state = "new" if self.is_new else f"opened, {_count(self.topic_count, 'topic')}"
        create = f"ottla topics --bootstrap-server {self.bootstrap} --create --topic events"
        lines = [
            f"Ottla {__version__} ({PROTOCOL}){_speed_note()}",
            f"node      {self.node_id}, cluster {self.cluster_id}",
            f"bootstrap {self.bootstrap}",
            f"data      {self.data_directory} ({state})",
        ]
        if self.metrics_url is not None:
            lines.append(f"metrics   {self.metrics_url}")
        return [*lines, f"next      {create}"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
