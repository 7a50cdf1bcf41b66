"""Fences brokers whose processes have ended before their sessions expire.

The operating system closes the connections of a process that dies and refuses new ones to its
ports, so the active controller connects to the inter-broker listener of a broker whose connection
has ended. Only a refused connection fences it; a time-out, as of a lost machine or a cut link,
leaves the decision to broker.session.timeout.ms. A live broker that was fenced by mistake is
unfenced by its next heartbeat.

Kafka: none; its controller waits for the session (BrokerHeartbeatManager).
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

from ottla.network.outgoing import is_refused

if TYPE_CHECKING:
    from ottla.metadata.broker import BrokerRegistration
    from ottla.metadata.image import MetadataImage
    from ottla.network.connection import Connection

log = logging.getLogger("ottla.controller")
PROBE_TIMEOUT_S: Final = 1.0
PROBE_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.0)
"""Pauses after accepted probes: a process that ends may still listen briefly."""


class ProbeResult(Enum):
    """Outcome of a connection to a broker's listener."""

    ACCEPTED = auto()
    REFUSED = auto()
    UNKNOWN = auto()


class LostBrokers(Protocol):
    """The part of this node's controller that this module uses."""

    @property
    def active(self) -> bool:
        """Whether it is the active controller."""

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""

    def fence_lost_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker unless it has another epoch by now."""


class FailureDetection:
    """Tracks the connections of brokers' heartbeats, and probes brokers that lose them."""

    def __init__(
        self,
        controller: LostBrokers,
        *,
        node_id: int,
        listener: str,
        is_enabled: bool,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Take the name of the listener at which brokers are probed, the inter-broker one."""
        self._controller = controller
        self._node_id = node_id
        self._listener = listener
        self._is_enabled = is_enabled
        self._loop = loop
        self._brokers: dict[str, int] = {}
        """Connection ids → the broker that sent its last heartbeat over it."""
        self._probes: dict[int, asyncio.Task[None]] = {}

    def heard(self, connection: Connection, broker_id: int) -> None:
        """Record the connection of a broker's heartbeat."""
        self._brokers[connection.connection_id] = broker_id

    def connection_closed(self, connection: Connection) -> None:
        """Probe a broker that has no other connection to this controller."""
        broker_id = self._brokers.pop(connection.connection_id, None)
        if broker_id is not None and broker_id not in self._brokers.values():
            self._probe_soon(broker_id)

    def became_active(self) -> None:
        """Probe all brokers that have not sent this controller a heartbeat."""
        for broker_id in list(self._controller.image.cluster.brokers):
            if broker_id not in self._brokers.values():
                self._probe_soon(broker_id)

    def close(self) -> None:
        """End all probes."""
        self._is_enabled = False
        for probe in list(self._probes.values()):
            probe.cancel()

    def _probe_soon(self, broker_id: int) -> None:
        broker = self._unfenced(broker_id)
        if broker is None or broker_id in self._probes:
            return
        probe = self._loop.create_task(self._probe(broker))
        self._probes[broker_id] = probe
        probe.add_done_callback(lambda _done: self._probes.pop(broker_id, None))

    def _unfenced(self, broker_id: int) -> BrokerRegistration | None:
        """Return a broker of another node that this controller may have to fence."""
        if not self._is_enabled or not self._controller.active or broker_id == self._node_id:
            return None
        broker = self._controller.image.cluster.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker

    async def _probe(self, broker: BrokerRegistration) -> None:
        """Repeat probes until one is refused, a heartbeat arrives or the attempts end."""
        broker_id, epoch = broker.broker_id, broker.broker_epoch
        addresses = broker.listeners
        address = addresses.get(self._listener) or next(iter(addresses.values()), None)
        if address is None:
            return
        for pause_s in PROBE_PAUSES_S:
            result = await probe(self._loop, address.host, address.port)
            current = self._unfenced(broker_id)
            if current is None or current.broker_epoch != epoch:
                return
            if broker_id in self._brokers.values() or result is ProbeResult.UNKNOWN:
                return
            if result is ProbeResult.REFUSED:
                text = "broker %d is fenced: %s:%d refuses connections; start its process again"
                extra = {"event": "broker.lost"}
                log.warning(text, broker_id, address.host, address.port, extra=extra)
                self._controller.fence_lost_broker(broker_id, epoch)
                return
            await asyncio.sleep(pause_s)


async def probe(loop: asyncio.AbstractEventLoop, host: str, port: int) -> ProbeResult:
    """Connect to an address and close the connection at once."""
    transport: asyncio.BaseTransport | None = None
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
    except (OSError, ValueError) as error:  # ValueError: no valid host name
        return ProbeResult.REFUSED if is_refused(error) else ProbeResult.UNKNOWN
    transport.close()
    return ProbeResult.ACCEPTED
