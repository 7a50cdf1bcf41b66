"""One partition and its replicas in virtual time, over simulated disks and a bad network.

The brokers' parts are those that ship: `ReplicaSet`, `Partition` with its `LeaderState`,
`IsrUpdates`, `ReplicaFetcher`, the log. Every event is an entry of one heap; the seed decides
everything else. A model of the controller (`replica_controller.py`) decides about the in-sync set.
"""

from __future__ import annotations

import zlib
from collections import Counter
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.purgatory.pending import Pending
from tests.simulation.quorum_faults import SimulatedClock
from tests.simulation.replica_broker import (
    REQUEST_TIMEOUT_MS,
    SimulatedBroker,
    complete,
    fail,
)
from tests.simulation.replica_checks import ReplicaChecks
from tests.simulation.replica_controller import Image, ModelController

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.replication.partition import Partition

PRODUCE_TIMEOUTS_MS = (300, 1000, 3000)
MAX_EVENTS_PER_MS = 3000


class SimulatedReplicas:
    """All brokers, the controller, the network and the time."""

    def __init__(self, seed: int, *, brokers: int = 4, replicas: int = 3) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.clock = SimulatedClock()
        self.checks = ReplicaChecks()
        self.events = self.events_of_ms = 0
        self.trace = 0
        self.produced: Counter[str] = Counter()
        self.drop_probability = self.duplicate_probability = 0.0
        self.late_probability = 0.02
        self.cut: set[tuple[int, int]] = set()
        """Links on which nothing passes, as (from, to); 0 is the controller."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._offered = 0
        self.brokers: dict[int, SimulatedBroker] = {}
        self.controller = ModelController(self, range(1, replicas + 1))
        for node_id in range(1, brokers + 1):
            self.brokers[node_id] = SimulatedBroker(self, node_id)
        for broker in list(self.brokers.values()):
            broker.start()
        self.happen(100, self._tick)

    def note(self, text: str) -> None:
        """Add a line to the trace, of which only a checksum is kept."""
        self.trace = zlib.crc32(f"{self.clock.ms} {text}".encode(), self.trace)

    def happen(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        """Let something happen after a while."""
        self._count += 1
        heappush(self._heap, (self.clock.ms + delay_ms, self._count, action, arguments))

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        end_ms = self.clock.ms + duration_ms
        while self._heap and self._heap[0][0] <= end_ms:
            at_ms, _, action, arguments = heappop(self._heap)
            self.events_of_ms = self.events_of_ms + 1 if at_ms == self.clock.ms else 0
            assert self.events_of_ms < MAX_EVENTS_PER_MS, "the brokers are busy without end"
            self.clock.ms = at_ms
            self.events += 1
            action(*arguments)
        self.clock.ms = end_ms

    def _tick(self) -> None:
        self.happen(100, self._tick)
        self.controller.tick()

    # The network

    def carry(self, source: int, target: int, action: Callable[..., None], *args: Any) -> None:
        """Carry a message: it may be lost, late, or come twice."""
        rng = self.rng
        if (source, target) in self.cut or rng.random() < self.drop_probability:
            return
        for _ in range(1 + (rng.random() < self.duplicate_probability)):
            is_late = rng.random() < self.late_probability * (1 if source and target else 3)
            self.happen(rng.randrange(50, 2500) if is_late else rng.randrange(1, 6), action, *args)

    def exchange(
        self, source: SimulatedBroker, target: SimulatedBroker, request: Any
    ) -> Pending[Any]:
        """Carry a request between brokers and its response."""
        pending: Pending[Any] = Pending()
        life = source.life
        source.last_fetch = (target, request)

        def serve() -> None:
            response = target.answer(request)
            self.note(f"{source.node_id} {target.node_id} {request!r} {response!r}")
            self.carry(
                target.node_id, source.node_id, source.guarded, life, complete, pending, response
            )

        def arrive() -> None:
            target.guarded(target.life, serve)

        self.carry(source.node_id, target.node_id, arrive)
        self.happen(REQUEST_TIMEOUT_MS, source.guarded, life, fail, pending)
        return pending

    def decided(self, image: Image) -> None:
        """Publish a decision of the controller."""
        self.note(f"image {image}")
        for broker in self.brokers.values():
            self.publish(broker, image)

    def publish(self, broker: SimulatedBroker, image: Image) -> None:
        """Send metadata to one broker."""
        if broker.is_alive:
            self.carry(0, broker.node_id, broker.guarded, broker.life, broker.see, image)

    # Faults and work

    def restart_later(self, broker: SimulatedBroker) -> None:
        """Start a node again after a while: at times sooner than it is missed."""
        delay_ms = self.rng.choice([self.rng.randrange(1, 30), self.rng.randrange(1, 4000)])
        self.happen(delay_ms, self._restart, broker, broker.life)

    def _restart(self, broker: SimulatedBroker, life: int) -> None:
        if broker.life == life and not broker.is_alive:
            broker.start()
            self.checks.observe(broker)

    def may_lose(self, broker: SimulatedBroker) -> bool:
        """Whether what is committed survives when this node loses what it has not flushed.

        Kafka acknowledges before it flushes: one holder of it that loses nothing must be left.
        """
        partition = self.controller.partition
        holders = {*partition.isr, *partition.eligible_leader_replicas} - {broker.node_id}
        return any(self.brokers[one].is_clean for one in holders)

    def fault(self) -> None:
        """Do one thing of a bad day."""
        rng = self.rng
        broker = rng.choice(list(self.brokers.values()))
        nodes = [0, *self.brokers]
        kind = rng.randrange(12)
        if kind <= 2 and broker.is_alive:
            broker.stop(power_cut=kind < 2 and self.may_lose(broker))
            self.restart_later(broker)
        elif kind == 3:
            pairs = [(one, other) for one in nodes for other in nodes if one != other]
            self.cut = {pair for pair in pairs if rng.random() < 0.2}
        elif kind == 4:
            side = set(rng.sample(nodes, rng.randrange(1, len(nodes))))
            pairs = [(one, other) for one in nodes for other in nodes]
            self.cut = {pair for pair in pairs if (pair[0] in side) != (pair[1] in side)}
        elif kind == 5:
            self.cut = set()
        elif kind == 6:
            self.drop_probability = rng.choice([0.0, 0.05, 0.3])
            self.duplicate_probability = rng.choice([0.0, 0.1])
            self.late_probability = rng.choice([0.0, 0.02, 0.2])
        elif kind == 7:
            self.controller.move_leader()
        elif kind == 8:
            self.controller.reassign()
        elif kind == 9:
            self._bounce(broker)
        else:
            self._deafen_leader()

    def _deafen_leader(self) -> None:
        """Let the leader's requests reach the controller, but no answer; followers go later."""
        leader = self.controller.partition.leader
        self.cut = {(0, leader)}
        for node_id in self.brokers:
            if self.rng.random() < 0.4:
                self.happen(self.rng.randrange(1500), self._cut_later, (node_id, leader))

    def _bounce(self, broker: SimulatedBroker) -> None:
        """Cut a follower's power for a moment; a copy of its last fetch is still on its way."""
        if not broker.is_alive or broker.last_fetch is None or not self.may_lose(broker):
            return
        target, request = broker.last_fetch

        def serve() -> None:
            target.answer(request)

        for delay_ms in (self.rng.randrange(10, 900), self.rng.randrange(10, 900)):
            self.happen(delay_ms, target.guarded, target.life, serve)
        broker.stop(power_cut=True)
        self.happen(self.rng.randrange(1, 10), self._restart, broker, broker.life)

    def _cut_later(self, pair: tuple[int, int]) -> None:
        if (0, pair[1]) in self.cut:
            self.cut.add(pair)

    def heal(self) -> None:
        """End all faults; nodes that are down come back."""
        self.cut = set()
        self.drop_probability = self.duplicate_probability = self.late_probability = 0.0
        for broker in self.brokers.values():
            if not broker.is_alive:
                self._restart(broker, broker.life)

    def work(self) -> None:
        """Let a producer send to who it takes for the leader: whoever says so."""
        rng = self.rng
        for broker in self.brokers.values():
            partition = broker.partition
            if broker.is_alive and partition is not None and partition.is_leader:
                self._offered += 1
                broker.guarded(
                    broker.life,
                    broker.produce,
                    b"%d" % self._offered,
                    rng.randrange(1, 4),
                    rng.choice(PRODUCE_TIMEOUTS_MS),
                )

    def leader(self) -> Partition | None:
        """Return the partition where it is led by decision of the controller."""
        broker = self.brokers.get(self.controller.partition.leader)
        return None if broker is None else broker.partition

    def check_agreement(self) -> None:
        """Check, when all is well again, that all replicas are in sync and equal."""
        registration = self.controller.partition
        assert set(registration.isr) == set(registration.replicas), registration
        ends = set()
        for node_id in registration.replicas:
            partition = self.brokers[node_id].partition
            assert partition is not None
            log = partition.log
            ends.add((log.log_end_offset, log.high_watermark))
            self.checks.observe(self.brokers[node_id])
        assert ends == {(self.checks.end_offset, self.checks.end_offset)}, ends
