"""Ports that cannot be bound: who holds them, and which one is free.

Kafka: none; SocketServer prints the system's error.
"""

from __future__ import annotations

from errno import EADDRINUSE
from shlex import quote
from typing import TYPE_CHECKING

from ottla.server.system.environment import SocketOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ottla.server.system.environment import Network


class PortTaken(Exception):
    """A listener's port cannot be bound; the text is one line with the reason and what to do.

    `overrides` are the settings with which the node starts on a free port; 0 stands for any port.
    """

    def __init__(self, reason: str, overrides: Sequence[str] = (), port: int = 0) -> None:
        self.reason = reason
        self.port = port
        self.overrides = tuple(overrides)
        flags = " ".join(f"--override {quote(override)}" for override in self.overrides)
        super().__init__(f"{reason}; stop it or start with {flags}" if flags else reason)


def port_taken(
    host: str,
    port: int,
    error: OSError,
    network: Network,
    *,
    setting: str,
    overrides: Callable[[int], Sequence[str]],
    own_ports: Collection[int] = (),
) -> PortTaken:
    """Return why a port cannot be bound: the process that holds it, and settings for another port.

    Only a port in use has a holder: not an address of another machine, or a privileged port.
    overrides(port) returns the settings of a node that listens on the port instead; own_ports are
    those that the node itself will take.
    """
    shown = host or "0.0.0.0"  # noqa: S104 - only shown
    if error.errno != EADDRINUSE:
        return PortTaken(f"cannot listen on {shown}:{port}, see {setting}: {error.strerror}")
    holder = network.holder_of_port(port)
    who = f" by {holder}" if holder else f" ({error})"
    reason = f"port {port} on {shown} is taken{who}"
    free = _free_port(network, host, port, own_ports)
    return PortTaken(reason, overrides(free), free)


def _free_port(network: Network, host: str, taken: int, own_ports: Collection[int]) -> int:
    """Return the next port that can be bound, 0 (any) when none of the next ones is free."""
    for port in range(taken + 1, min(taken + 50, 65536)):
        if port in own_ports:  # as that of the controller, the next one in Kafka's own files
            continue
        try:
            network.listen(host, port, SocketOptions()).close()
        except OSError:
            continue
        return port
    return 0
