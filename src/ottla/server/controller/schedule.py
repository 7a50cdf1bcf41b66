"""Work of the active controller by the clock, and the detection of ended brokers.

Kafka: the tasks of org.apache.kafka.controller.PeriodicTaskControlManager.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from ottla.network.node_channel import is_refused
from ottla.server.system.timers import next_aligned_tick

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.controller.result import Decision
    from ottla.controller.runtime import ControllerRuntime
    from ottla.metadata.broker import BrokerRegistration
    from ottla.metadata.image import MetadataImage
    from ottla.network.connection import Connection
    from ottla.purgatory.pending import Pending


class _Task:
    """A periodic task."""

    __slots__ = ("due_ms", "operation", "period_ms")

    def __init__(self, operation: Callable[[], Decision[None]], period_ms: int) -> None:
        self.operation = operation
        self.period_ms = period_ms
        self.due_ms = 0

    def run(self, runtime: ControllerRuntime, now_ms: int) -> None:
        runtime.write(self.operation)
        self.schedule(now_ms)

    def schedule(self, now_ms: int) -> None:
        self.due_ms = next_aligned_tick(now_ms, self.period_ms)


class Schedule:
    """Call `run` while the controller is active, when its deadline comes."""

    def __init__(self, runtime: ControllerRuntime, config: BrokerConfig, clock: Clock) -> None:
        self._runtime = runtime
        self._idle_ms: int = config.metadata_max_idle_interval_ms
        elections = runtime.controller.elections
        self._tasks = [
            _Task(elections.elect_unclean_leaders, config.unclean_leader_election_interval_ms)
        ]
        if config.delegation_token_secret_key is not None:
            tokens = runtime.controller.tokens
            period_ms = config.delegation_token_expiry_check_interval_ms
            self._tasks.append(_Task(lambda: tokens.sweep(clock.now_ms()), period_ms))
        if config.auto_leader_rebalance_enable:
            period_ms = config.leader_imbalance_check_interval_seconds * 1000
            self._tasks.append(_Task(elections.balance_leaders, period_ms))
        self._lost_brokers: dict[int, int] = {}
        """When the sessions of lost brokers would expire, in monotonic ms."""
        self._fencing: set[int] = set()
        """Brokers with an expired session that are being fenced."""
        self._interval_ms: int = config.broker_heartbeat_interval_ms
        self._session_ms: int = config.broker_session_timeout_ms
        self._due_ms: int | None = None
        """When the next run is due."""
        self._listens_until_ms = 0
        """No broker is fenced before: this controller was stalled, and heartbeats may wait."""
        self._listening_limit_ms: int | None = None
        """The end of a session that began after the first of several stalls, without the others."""

    def begin(self, now_ms: int) -> None:
        """Reset all deadlines when this controller becomes active."""
        self._lost_brokers.clear()
        self._due_ms = None
        self._runtime.controller.leadership.lost_brokers.clear()
        for task in self._tasks:
            task.schedule(now_ms)

    def await_lost_broker(self, broker_id: int, due_ms: int) -> None:
        """Allow unclean elections of a lost broker's partitions when its session would expire."""
        self._lost_brokers[broker_id] = due_ms

    def _expire_lost_brokers(self, now_ms: int) -> int | None:
        """Return when the next session would expire."""
        lost = self._runtime.controller.leadership.lost_brokers
        for broker_id in [one for one, due_ms in self._lost_brokers.items() if due_ms <= now_ms]:
            del self._lost_brokers[broker_id]
            lost.discard(broker_id)
            self._tasks[0].due_ms = now_ms
        return min(self._lost_brokers.values(), default=None)

    def run(self, now_ms: int) -> int:
        """Run the tasks that are due; return the next deadline. Times are monotonic ms."""
        runtime = self._runtime
        self._notice_stall(now_ms)
        deadlines: list[int | None] = [now_ms + self._interval_ms]
        deadlines += self._fence_silent_brokers(now_ms), self._expire_lost_brokers(now_ms)
        for task in self._tasks:
            if now_ms >= task.due_ms and runtime.active:
                task.run(runtime, now_ms)
            deadlines.append(task.due_ms)
        if self._idle_ms > 0 and runtime.active:
            if now_ms >= next_aligned_tick(runtime.last_append_ms, self._idle_ms):
                runtime.write_no_op()
            deadlines.append(next_aligned_tick(runtime.last_append_ms, self._idle_ms))
        self._due_ms = min(deadline for deadline in deadlines if deadline is not None)
        return self._due_ms

    def _notice_stall(self, now_ms: int) -> None:
        """Listen for two heartbeat intervals after a stall of this process or machine.

        Kafka counts a heartbeat when a request thread reads it, however long it then waits in the
        queue of the controller (BrokerHeartbeatTracker). After repeated stalls it is less, so that
        a broker is fenced which is silent while this controller runs.
        """
        stall_ms = 0 if self._due_ms is None else now_ms - self._due_ms
        if stall_ms < self._interval_ms:
            return
        limit_ms = self._listening_limit_ms
        limit_ms = now_ms + self._session_ms if limit_ms is None else limit_ms + stall_ms
        self._listening_limit_ms = limit_ms
        left_ms = max(limit_ms - now_ms, self._interval_ms // 2)
        self._listens_until_ms = now_ms + min(left_ms, 2 * self._interval_ms)

    def _fence_silent_brokers(self, now_ms: int) -> int | None:
        """Return when the next session ends."""
        if now_ms < self._listens_until_ms:
            return self._listens_until_ms
        self._listening_limit_ms = None
        runtime, controller = self._runtime, self._runtime.controller
        heartbeats = controller.cluster.heartbeats
        for broker_id in heartbeats.stale(self._watched(), now_ms):
            if runtime.active:
                self._fencing.add(broker_id)
                fence = partial(controller.fence_stale_broker, broker_id, now_ms)
                runtime.write(fence).on_done(partial(self._fenced, broker_id))
        return heartbeats.next_expiry_ms(self._watched())

    def _watched(self) -> list[int]:
        """Return the brokers whose sessions may expire, without those that are being fenced."""
        unfenced = self._runtime.controller.cluster.unfenced_ids()
        return [broker_id for broker_id in unfenced if broker_id not in self._fencing]

    def _fenced(self, broker_id: int, _done: Pending[None]) -> None:
        self._fencing.discard(broker_id)


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
