"""The environment of a `Cluster`'s real nodes: an adjustable clock, faulty links and disks.

Kafka: org.apache.kafka.common.utils.MockTime.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.server.system.real import RealEnvironment
from ottla.server.system.timers import SystemClock
from ottla.testing.fault_disk import FaultyDirectory
from ottla.testing.fault_network import FaultyNetwork, connecting

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.testing.fault_disk import DiskFaults
    from ottla.testing.fault_network import NetworkFaults


class ClusterClock:
    """The clock of all nodes of a `Cluster`; clients use the system clock."""

    def __init__(self, moved: Callable[[], None]) -> None:
        """Take the callback that notifies the nodes of a change."""
        self._moved = moved
        self._machine = SystemClock()
        self.ahead_ms = 0
        """Offset from the system clock, in ms."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self._machine.now_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        """Milliseconds that never step back."""
        return self._machine.monotonic_ms() + self.ahead_ms

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Advance the time of all nodes: due timers fire, and retention is applied."""
        whole_seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        step_ms = round(whole_seconds * 1000 + milliseconds)
        if step_ms < 0:
            raise ValueError("time does not go back")
        self.ahead_ms += step_ms
        self._moved()


class SharedFaults:
    """The clock and the links that the nodes of a cluster share."""

    def __init__(self, clock: ClusterClock, network: NetworkFaults | None) -> None:
        """Without network faults the nodes use the system's network."""
        self._clock = clock
        self._network = network

    def environment(self, node_id: int, disk: DiskFaults) -> RealEnvironment:
        """Return the environment of a node."""
        return FaultyEnvironment(self._clock, disk, self._network, node_id)

    def new_loop(self, node_id: int) -> asyncio.AbstractEventLoop:
        """Return the loop of a node, which opens its connections."""
        kind: type[asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop
        try:
            import uvloop
        except ImportError:  # not on Windows
            pass
        else:
            kind = uvloop.Loop
        return kind() if self._network is None else connecting(kind, self._network, node_id)


class FaultyEnvironment(RealEnvironment):
    """The real environment with the cluster's clock and injected disk and link faults."""

    def __init__(
        self, clock: ClusterClock, disk: DiskFaults, network: NetworkFaults | None, node_id: int
    ) -> None:
        super().__init__(clock=clock)
        self._disk = disk
        if network is not None:
            self.network = FaultyNetwork(network, node_id)

    def open_directory(self, path: str) -> FaultyDirectory:
        """Return a directory, made when missing."""
        return FaultyDirectory(path, self._disk)
