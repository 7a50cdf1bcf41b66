"""Recovered state equals live state, for the coordinators of a whole cluster.

Every so many turns of the loop each broker's next loaded partition of a coordinator is compared
with another shard that loads what the broker's own log holds: as it is, and as the cleaner could
leave it. Logs are read straight from the simulated disks' files, so that it is no event.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ottla import TopicPartition
from ottla.coordinator.runtime.active import ShardState
from ottla.errors import KafkaError
from ottla.server.broker.topic_auto_creation import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from tests.coordinator.harness import MemoryLog
from tests.coordinator.recovered import (
    compacted,
    differences,
    load,
    replayed_state,
    split_batches,
    with_other_batches,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from ottla.clients.admin.admin import AsyncAdmin
    from ottla.coordinator.runtime.runtime import CoordinatorRuntime
    from ottla.server.node.node import Node
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.testing.simulation import SimulatedCluster
    from tests.simulation.clusters.checks import NodeView

TURNS_IN_BETWEEN: Final = 200
"""A comparison takes some ten milliseconds: this is a tenth of a run."""
_MOVE_EVERY_S: Final = 6.0
_MOVE_LIMIT_S: Final = 20.0
_COMPACTED: Final = frozenset({OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})


class Coordinators:
    """Compares one loaded partition of one broker at a time."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(f"{seed}/coordinators")
        self._turns = 0
        self.compared: dict[str, int] = {}
        """How often a partition of each topic was compared."""

    def check(self, views: list[NodeView]) -> None:
        """Compare after so many turns."""
        self._turns += 1
        if self._turns % TURNS_IN_BETWEEN or not views:
            return
        view = self._rng.choice(views)
        loaded = list(_loaded(view.node))
        if loaded:
            self._compare(view, *self._rng.choice(loaded))

    def check_all(self, views: list[NodeView]) -> None:
        """Compare all that is loaded."""
        for view in views:
            for topic, runtime, partition in _loaded(view.node):
                self._compare(view, topic, runtime, partition)

    def _compare(
        self, view: NodeView, topic: str, runtime: CoordinatorRuntime[Any], partition: int
    ) -> None:
        replica = view.node.broker.replicas.find(topic, partition)
        active = runtime._partitions[partition]
        if replica is None or replica.log.log_end_offset != active._written_offset:
            return  # it was deleted, or another broker leads it, which the node learns next
        log = _copied(replica.log, partition)
        variants = {
            "its log": log,
            "its log in other batches": with_other_batches(log, self._rng, partition),
        }
        if topic in _COMPACTED:
            variants["its log, compacted"] = compacted(log, self._rng, partition)
        live = replayed_state(active.shard)
        for name, variant in variants.items():
            loaded = replayed_state(load(runtime, variant, partition, self._rng))
            found = differences(live, loaded)
            assert not found, (
                f"{view.name} has another state of {topic}-{partition} than {name} gives:\n"
                + "\n".join(found)
            )
        self.compared[topic] = self.compared.get(topic, 0) + 1


def has_moves(seed: int) -> bool:
    """Whether the coordinators of a seed move; each kind of clients is among these seeds."""
    return seed // 7 % 3 == 2


class CoordinatorMoves:
    """Gives coordinators to other brokers, which load them; `is_over` ends it."""

    def __init__(self, seed: int, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.rng = Random(f"{seed}/moves")
        self.is_over = False
        self.count = 0

    async def create(self) -> None:
        """Need nothing: the first clients have the topics created."""

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """Return what is to run until `is_over`."""
        return [self._move()]

    async def _move(self) -> None:
        async with self.cluster.admin() as admin:
            while not self.is_over:
                await asyncio.sleep(self.rng.random() * _MOVE_EVERY_S)
                with suppress(KafkaError, TimeoutError):
                    async with asyncio.timeout(_MOVE_LIMIT_S):
                        await self._move_one(admin)

    async def _move_one(self, admin: AsyncAdmin) -> None:
        """Elect another replica of one partition, as its new preferred leader."""
        nodes = [host.node for host in self.cluster if host.node is not None]
        topics = nodes[0].broker.image.topics.by_name if nodes else {}
        found = {
            TopicPartition(topic, index): partition
            for topic in (OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC)
            if topic in topics
            for index, partition in topics[topic].partitions.items()
            if not partition.is_reassigning and len(partition.isr) == len(partition.replicas)
        }
        if not found:
            return
        chosen = self.rng.choice(sorted(found))
        replicas = [one for one in found[chosen].replicas if one != found[chosen].leader]
        self.rng.shuffle(replicas)
        await admin.alter_partition_reassignments({chosen: [*replicas, found[chosen].leader]})
        await admin.elect_leaders()
        self.count += 1


def _loaded(node: Node) -> Iterator[tuple[str, CoordinatorRuntime[Any], int]]:
    broker = node.broker
    runtimes: dict[str, CoordinatorRuntime[Any]] = {
        OFFSETS_TOPIC: broker.groups.runtime,
        TRANSACTION_STATE_TOPIC: broker.transactions.runtime,
        SHARE_STATE_TOPIC: broker.share.coordinator.runtime,
    }
    for topic, runtime in runtimes.items():
        for partition, state in runtime.partitions.items():
            if state is ShardState.ACTIVE:
                yield topic, runtime, partition


def _copied(source: PartitionLog, partition: int) -> MemoryLog:
    """Return a copy of a log, from the bytes of its files."""
    copy = MemoryLog()
    batches: list[bytes] = []
    for segment in source.segments:
        data = segment.file._content.data  # type: ignore[attr-defined] # a SimulatedFile
        batches += split_batches(bytes(data[: segment.size]))
    copy.batches[partition] = batches
    copy.start_offsets[partition] = source.log_start_offset
    copy.end_offsets[partition] = copy.high_watermarks[partition] = source.log_end_offset
    return copy
