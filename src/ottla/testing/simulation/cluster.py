"""Several whole nodes on simulated hosts that form one cluster, and native clients of them.

Kafka: org.apache.kafka.common.test.KafkaClusterTestKit, without its threads and sockets.
"""

from __future__ import annotations

import asyncio
from itertools import chain, product
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.server.node.format import format_node, new_quorum
from ottla.testing.simulation.environment import START_MS
from ottla.testing.simulation.loop import SimulatedLoop, Trace
from ottla.testing.simulation.network import SimulatedNetwork
from ottla.testing.simulation.node import CONTROLLER_PORT, PORT, SimulatedNode
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Mapping

    from ottla.clients.admin.admin import AsyncAdmin
    from ottla.clients.consumer.consumer import AsyncConsumer
    from ottla.clients.producer.producer import AsyncProducer
    from ottla.clients.share.consumer import AsyncShareConsumer
    from ottla.server.node.format import QuorumFormat

T = TypeVar("T")
BOTH = "broker,controller"


class SimulatedCluster:
    """Formatted nodes 1, 2, … in virtual time, of which the seed decides everything.

    Parameters:
        seed: the same seed gives the same run, with the same trace.
        nodes: how many.
        roles: process.roles by node id, of nodes that are not broker and controller.
        config: settings of all nodes under Kafka's dotted names.
        feature_levels: levels as for `storage format --feature`.
        keep_lines: whether the trace keeps its text.

        >>> cluster = SimulatedCluster(7, nodes=3)
        >>> async def main():
        ...     await cluster.start()
        ...     async with cluster.producer() as producer:
        ...         return (await producer.send_and_wait("orders", b"tea")).offset
        >>> cluster.run(main())
        0
    """

    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 3,
        roles: Mapping[int, str] = MappingProxyType({}),
        config: Mapping[str, str] | None = None,
        feature_levels: Mapping[str, int] = MappingProxyType({}),
        keep_lines: bool = False,
    ) -> None:
        self.seed = seed
        self._disk_count = 0
        """Disks that were replaced."""
        self.loop = SimulatedLoop(Trace(keep_lines=keep_lines))
        self.network = SimulatedNetwork(self.loop, Random(f"{seed}/network"))  # noqa: S311 - repeatable
        rng = Random(f"{seed}/format")  # noqa: S311 - repeatable
        voters = [
            number for number in range(1, nodes + 1) if "controller" in roles.get(number, BOTH)
        ]
        quorum = self._quorum = new_quorum(
            {number: (f"node{number}", CONTROLLER_PORT) for number in voters},
            lambda: Uuid(rng.randbytes(16)),
            now_ms=START_MS,
        )
        self._feature_levels = feature_levels
        self._nodes = {
            number: self._make(number, quorum, roles.get(number, BOTH), config or {})
            for number in range(1, nodes + 1)
        }
        self.bootstrap = ",".join(
            f"{node.host}:{PORT}" for node in self if "broker" in node.config["process.roles"]
        )

    def _make(
        self, number: int, quorum: QuorumFormat, roles: str, config: Mapping[str, str]
    ) -> SimulatedNode:
        host = f"node{number}"
        listeners = {"broker": f"PLAINTEXT://{host}:{PORT}"}
        listeners["controller"] = f"CONTROLLER://{host}:{CONTROLLER_PORT}"
        controllers = (f"node{voter.voter_id}:{CONTROLLER_PORT}" for voter in quorum.voters)
        node = SimulatedNode(
            self.seed * 100 + number,
            config={
                "node.id": str(number),
                "process.roles": roles,
                "listeners": ",".join(listeners[role] for role in roles.split(",")),
                "controller.quorum.bootstrap.servers": ",".join(controllers),
                "offsets.topic.replication.factor": str(min(3, len(quorum.voters))),
                "transaction.state.log.replication.factor": str(min(3, len(quorum.voters))),
                "share.coordinator.state.topic.replication.factor": str(min(3, len(quorum.voters))),
                **config,
            },
            network=self.network,
            host=host,
        )
        ids = Random(f"{self.seed}/ids/{number}")  # noqa: S311 - repeatable
        format_node(
            node.config,
            quorum,
            node.disks,
            lambda: Uuid(ids.randbytes(16)),
            self._feature_levels,
        )
        return node

    def __iter__(self) -> Iterator[SimulatedNode]:
        return iter(self._nodes.values())

    def __getitem__(self, node_id: int) -> SimulatedNode:
        return self._nodes[node_id]

    @property
    def trace(self) -> Trace:
        """The events so far."""
        return self.loop.trace

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; raises what any callback raised."""
        return self.loop.run(work)

    async def start(self, node_id: int | None = None) -> None:
        """Start a node; or all at once, and return when each knows all brokers."""
        if node_id is not None:
            await self[node_id].start()
            return
        starts = [self.loop.create_task(node.start()) for node in self]
        for start in starts:
            await start
        while not self._is_known_everywhere():  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.001)

    def _is_known_everywhere(self) -> bool:
        brokers = sum("broker" in node.config["process.roles"] for node in self)
        return all(
            one.node is not None
            and len([*one.node.broker.image.cluster.unfenced_brokers()]) == brokers
            for one in self
        )

    async def stop(self, node_id: int | None = None) -> None:
        """Stop a node, or all that run, one after another."""
        for one in self if node_id is None else (self[node_id],):
            if one.is_alive:
                await one.stop()

    @property
    def active_controller(self) -> SimulatedNode | None:
        """The node whose controller takes operations."""
        for one in self:
            if one.is_alive and one.node is not None and one.node.controller.active:
                return one
        return None

    # Faults

    def kill(self, node_id: int, *, power: bool = False) -> None:
        """End a node's process, or cut its power: then its disk loses what was not synced."""
        self[node_id].kill(power=power)

    def pause(self, node_id: int) -> None:
        """Stop a node's process as SIGSTOP does: it is silent, and its connections stay open."""
        self[node_id].pause()

    def resume(self, node_id: int) -> None:
        """Let a paused process go on."""
        self[node_id].resume()

    def replace_disks(self, node_id: int) -> None:
        """Give a node that is down empty disks, formatted as an operator does.

        A controller is no voter with them until it joins the quorum again (KIP-853), by itself with
        `controller.quorum.auto.join.enable` (KIP-1186).
        """
        node = self[node_id]
        assert not node.is_alive, "a process has the disks"
        for disk in node.disks.values():
            disk.erase()
        self._disk_count += 1
        ids = Random(f"{self.seed}/ids/{node_id}/{self._disk_count}")  # noqa: S311 - repeatable
        joining = self._quorum._replace(voters=())
        format_node(node.config, joining, node.disks, lambda: Uuid(ids.randbytes(16)))

    def cut(self, one: int | str, other: int | str, *, one_way: bool = False) -> None:
        """Let nothing arrive between two nodes, or a node and "clients", until `heal`.

        Connections stay open. With one_way, bytes of the second end still arrive at the first.
        """
        self.network.cut(_host(one), _host(other), one_way=one_way)

    def partition(self, *groups: Iterable[int | str]) -> None:
        """Cut every link between ends of different groups."""
        lists = [list(group) for group in groups]
        for number, group in enumerate(lists):
            for one, other in product(group, chain(*lists[number + 1 :])):
                self.cut(one, other)

    def drop(self, one: int | str, other: int | str) -> None:
        """Reset the connections between two ends, once."""
        self.network.break_links(_host(one), _host(other))

    def heal(self) -> None:
        """Let everything arrive, also what was sent while links were cut."""
        self.network.heal()

    # Clients

    @property
    def _any(self) -> SimulatedNode:
        return next(iter(self))

    def producer(self, **settings: Any) -> AsyncProducer:
        """Return a producer of this cluster."""
        return self._any.producer(bootstrap_servers=self.bootstrap, **settings)

    def consumer(self, *topics: str, **settings: Any) -> AsyncConsumer:
        """Return a consumer of this cluster."""
        return self._any.consumer(*topics, bootstrap_servers=self.bootstrap, **settings)

    def share_consumer(self, *topics: str, **settings: Any) -> AsyncShareConsumer:
        """Return a share consumer of this cluster."""
        return self._any.share_consumer(*topics, bootstrap_servers=self.bootstrap, **settings)

    def admin(self, **settings: Any) -> AsyncAdmin:
        """Return an admin client of this cluster."""
        return self._any.admin(bootstrap_servers=self.bootstrap, **settings)


def _host(end: int | str) -> str:
    return end if isinstance(end, str) else f"node{end}"
