"""The network as one process of a simulated host sees it.

Kafka: none.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

    from ottla.server.system.environment import HttpService, SocketOptions
    from ottla.testing.simulation.network import (
        SimulatedListener,
        SimulatedNetwork,
        SimulatedSocket,
    )
    from ottla.testing.simulation.process import Process


class HostNetwork:
    """The network as one process of a host sees it: an environment's `network`."""

    def __init__(self, network: SimulatedNetwork, host: str, process: Process) -> None:
        self._network = network
        self._host = host
        self._process = process

    def listen(self, host: str, port: int, _options: SocketOptions) -> socket.socket:
        """Bind a listener that closes with the process."""
        listener = self._network.listen(host or self._host, port)
        self._process.on_death(listener.close)
        return _Accepting(listener, self._process)  # type: ignore[return-value] # has the calls that are made

    def host_name(self) -> str:
        """Return the host's name."""
        return self._host

    def addresses_of(self, host: str) -> set[str]:
        """Return the name itself: simulated hosts have no other address."""
        return {host}

    def holder_of_port(self, _port: int) -> str | None:
        """Return None: processes cannot be listed."""
        return None

    def bind_http(self, _host: str, _port: int) -> HttpService:
        """Refuse: HTTP is not simulated."""
        raise OSError(errno.ENOTSUP, "HTTP is not simulated: leave metrics.listener unset")


class _Accepting:
    """A listener whose accepted sockets are reset when their process dies."""

    def __init__(self, listener: SimulatedListener, process: Process) -> None:
        self._listener = listener
        self._process = process
        self.fileno = listener.fileno
        self.getsockname = listener.getsockname
        self.close = listener.close

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        """Accept a connection."""
        sock, peer = self._listener.accept()
        self._process.on_death(sock.reset)
        return sock, peer
