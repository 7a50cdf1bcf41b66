"""A consumer's core on a simulated cluster: what its façades do, without a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.consumer.core import ConsumerCore, call_listener
from tests.clients.simulated import FakeCluster, Simulation, consumer_settings

if TYPE_CHECKING:
    from ottla.clients.offsets import OffsetAndMetadata
    from ottla.purgatory.pending import Pending
    from ottla.types import TopicPartition


class SimulatedConsumer:
    """A core whose sockets and clock are simulated."""

    def __init__(self, cluster: FakeCluster, **settings: Any) -> None:
        values = {
            "bootstrap_servers": "broker:9001",
            "group_id": "g",
            "heartbeat_interval_ms": 100,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            **settings,
        }
        self.sim = Simulation(cluster, consumer_settings(**values))
        self.core = ConsumerCore(None, values)
        self.sim.client = self.core.client
        self.core.client.transport = self.sim
        self.core.client.now_ms = self.sim.now_ms
        self.core.now_ms = lambda: self.sim.now_ms

    def poll(self, limit: int | None = None) -> list[Any]:
        """Do what `poll(0)` does, but for commits before a rebalance."""
        core = self.core
        while (step := core.user_poll()) is not None:
            assert core.group is not None
            if step.kind != "assigned" or core.group.step_done(step):
                call_listener(core.subscription.listener, step)
            if step.kind != "assigned":
                core.group.step_done(step)
        return core.joined(core.take(limit, with_topic=True))

    def settle(self, partitions: int) -> None:
        """Poll until so many partitions are assigned and have positions."""

        def settled() -> bool:
            step = self.core.user_poll()
            if step is not None:
                assert self.core.group is not None
                self.core.group.step_done(step)
            states = self.core.subscription.partitions.values()
            return len(states) == partitions and all(s.position is not None for s in states)

        self.sim.run(settled, limit_ms=5_000)

    def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> Pending[Any]:
        """Send a commit and wait for its end."""
        pending = self.core.send_commit(offsets)
        self.sim.run(lambda: pending.done)
        return pending
