"""The environment of a `Cluster`'s real nodes: an adjustable clock, faulty links and disks.

Kafka: none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.server.system.real import RealEnvironment
from ottla.testing.fault_disk import FaultyDirectory
from ottla.testing.fault_network import FaultyNetwork, connecting

if TYPE_CHECKING:
    from ottla.testing.fault_clock import ClusterClock
    from ottla.testing.fault_disk import DiskFaults
    from ottla.testing.fault_network import NetworkFaults


class Outside:
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
