"""The machine that the process runs on, as a node's environment.

Kafka: SystemTime, SocketServer's channels, java.util.UUID.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import time
from typing import TYPE_CHECKING

from ottla.network.sockets import listen
from ottla.server.system.files import RealDirectory
from ottla.server.system.process import (
    addresses_of,
    holder_of_port,
    own_host_name,
    process_limits,
    random_uuid,
)
from ottla.server.system.timers import SystemClock
from ottla.server.system.workers import DetachedThreads, Workers

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Hashable

    from ottla.clock import Clock
    from ottla.server.system.environment import (
        HttpService,
        Limits,
        Network,
        SocketOptions,
        Stopwatch,
    )
    from ottla.types import Uuid

log = logging.getLogger("ottla.node")


class RealStopwatch:
    """The clocks of the processor."""

    is_real = True
    elapsed_s = staticmethod(time.perf_counter)
    cpu_s = staticmethod(time.thread_time)


class RealNetwork:
    """TCP of this machine."""

    def listen(self, host: str, port: int, options: SocketOptions) -> socket.socket:
        """Return a non-blocking listening socket; OSError when the address cannot be bound."""
        return listen(host, port, *options)

    def host_name(self) -> str:
        """Return the name by which other machines reach this one."""
        return own_host_name()

    def addresses_of(self, host: str) -> set[str]:
        """Return the addresses of a host; empty when the name is unknown."""
        return addresses_of(host)

    def holder_of_port(self, port: int) -> str | None:
        """Name the process that listens on a port."""
        return holder_of_port(port)

    def bind_http(self, host: str, port: int) -> HttpService:
        """Bind an HTTP server with a thread of its own; OSError."""
        from ottla.http.host import HttpHost

        return HttpHost(host, port, "metrics and probes")


_sched_yield: Callable[[], None] = getattr(os, "sched_yield", lambda: None)
"""Without sched_yield the loop continues at once."""


class RealEnvironment:
    """Real directories, sockets, threads and clocks."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        """Take another clock, as tests do that move the time."""
        self.clock: Clock = clock or SystemClock()
        self.rng = random.Random()  # noqa: S311 - session ids and names, no secrets
        self.network: Network = RealNetwork()
        self.stopwatch: Stopwatch = RealStopwatch()

    def new_uuid(self) -> Uuid:
        """Return a random version 4 id."""
        return random_uuid()

    def secret_bytes(self, count: int) -> bytes:
        """Return random bytes of the system."""
        return secrets.token_bytes(count)

    def open_directory(self, path: str) -> RealDirectory:
        """Return a directory, made when missing."""
        opened = RealDirectory(path, create=True)
        if opened.is_readable_by_others():
            log.warning(
                "every user of this machine can read %s, which has records and secrets; "
                "chmod -R o-rwx %s",
                opened.root,
                opened.root,
                extra={"event": "directory.readable"},
            )
        return opened

    def start_workers(
        self, loop: asyncio.AbstractEventLoop, count: int = 2, _volume: Hashable = None
    ) -> Workers:
        """Return threads that complete on this loop."""
        return Workers(loop, count)

    def start_detached(self, loop: asyncio.AbstractEventLoop) -> DetachedThreads:
        """Return threads for calls that may never end."""
        return DetachedThreads(loop)

    def limits(self) -> Limits:
        """Return the memory and the descriptors that the process may use."""
        return process_limits()

    def yield_processor(self) -> None:
        """Let other processes that are ready to run go first on this core."""
        _sched_yield()
