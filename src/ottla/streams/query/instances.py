"""Where the state of an application is, and how far it is behind: by store and partition.

Kafka: org.apache.kafka.streams.{StreamsMetadata, KeyQueryMetadata, LagInfo} (KIP-535). The state of
all partitions is in the checkpoint: there is one instance, it has no standby tasks, and no host
needs to be asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.producer.partitioner import key_hash
from ottla.streams.errors import StreamsException
from ottla.streams.plan.plan import layout
from ottla.streams.run.checkpoints import check_topology, noted_tasks
from ottla.streams.stores.key_value import key_bytes
from ottla.streams.topology.topology import SinkNode, matching

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ottla.spark.checkpoint import Checkpoint
    from ottla.streams.data.serdes import Serde
    from ottla.streams.dsl.settings import Partitioner
    from ottla.streams.plan.plan import Layout
    from ottla.streams.topology.topology import SubTopology, Topology
    from ottla.types import TopicPartition

_GLOBAL = -1
"""The partition of a key in a global store, as in Kafka."""


class KeyQueryMetadata(NamedTuple):
    """The partition of a store that has a key; -1 of a global store, which has no partitions."""

    partition: int


class StreamsMetadata(NamedTuple):
    """The stores of an instance, and the partitions of topics that it reads."""

    state_store_names: frozenset[str]
    topic_partitions: frozenset[TopicPartition]


class LagInfo(NamedTuple):
    """How far a store's partition is, and could be: the sums of the offsets that it depends on."""

    current_offset_position: int
    end_offset_position: int

    @property
    def offset_lag(self) -> int:
        """How many offsets are not in the state yet."""
        return max(0, self.end_offset_position - self.current_offset_position)


class Instance:
    """An application as its checkpoint has it, after the last committed micro-batch."""

    def __init__(self, topology: Topology, checkpoint: Checkpoint) -> None:
        """Take a checkpoint; StreamsException for one of another topology."""
        self._topology = topology
        self._is_started = checkpoint.last_committed_batch() >= 0
        self._positions: dict[TopicPartition, int] = {}
        self._tasks: dict[int, int] = {}
        if self._is_started:
            check_topology(checkpoint, topology)
            self._positions = checkpoint.committed_positions()
            self._tasks = noted_tasks(checkpoint)

    def metadata(self) -> list[StreamsMetadata]:
        """Return the instance; none before the first micro-batch is committed."""
        stores = frozenset(self._topology.stores)
        return [StreamsMetadata(stores, frozenset(self._positions))] if self._is_started else []

    def metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """Return the instance if it has a store."""
        return [metadata for metadata in self.metadata() if store in metadata.state_store_names]

    def key_metadata(
        self, store: str, key: Any, serde: Serde | None, partitioner: Partitioner | None
    ) -> KeyQueryMetadata | None:
        """Return where a key is; None before the first micro-batch, or without such a store."""
        if store in self._topology.global_stores():
            return KeyQueryMetadata(_GLOBAL)
        part = self._part_of(store)
        count = 0 if part is None else self._tasks.get(part.number, 0)
        if part is None or not count:
            return None
        found = None if partitioner is None else partitioner(self._topic_of(part), key, None, count)
        if found is None:
            default = self._topology.stores[store].key or self._topology.config.default_key_serde
            return KeyQueryMetadata(key_hash(key_bytes(serde or default, key)) % count)
        chosen = [found] if isinstance(found, int) else list(found)
        if len(chosen) != 1:
            raise StreamsException(f"a partitioner must choose one partition, not {chosen}")
        return KeyQueryMetadata(chosen[0])

    def lags(
        self, ends_of: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]]
    ) -> dict[str, dict[int, LagInfo]]:
        """Return how far each store's partitions are behind the ends of topics."""
        ends = ends_of(self._positions) if self._positions else {}
        steps = layout(self._topology, (place.topic for place in self._positions))
        found: dict[str, dict[int, LagInfo]] = {}
        for store in sorted(self._topology.stores.keys() - self._topology.global_stores()):
            part = self._part_of(store)
            for task in range(0 if part is None else self._tasks.get(part.number, 0)):
                assert part is not None
                places = inputs_of(steps, part, task, self._positions)
                position = sum(self._positions[partition] for partition in places)
                end = sum(ends.get(partition, self._positions[partition]) for partition in places)
                found.setdefault(store, {})[task] = LagInfo(position, end)
        return found

    def _topic_of(self, part: SubTopology) -> str:
        """Return a topic of a part: one that it names, or that its pattern matches."""
        patterns = [source for source in part.sources() if source.pattern is not None]
        known = sorted({place.topic for place in self._positions})
        return next(iter([*_topics(part), *(one for one in known if matching(one, patterns))]), "")

    def _part_of(self, store: str) -> SubTopology | None:
        parts = self._topology.sub_topologies()
        return next((part for part in parts if store in part.stores() and not part.is_global), None)


def inputs_of(
    steps: Layout, part: SubTopology, task: int, known: Collection[TopicPartition]
) -> set[TopicPartition]:
    """Return the known partitions of topics whose records reach the state of a task.

    Those of its topics with its number; all partitions of the topics before a repartition topic.
    """
    own = _real_topics(steps, part)
    before = {
        topic for topology in _parts_before(steps, part) for topic in _real_topics(steps, topology)
    }
    return {
        place
        for place in known
        if place.topic in before or (place.topic in own and place.partition == task)
    }


def _parts_before(steps: Layout, part: SubTopology) -> list[SubTopology]:
    """Return the sub-topologies that write what a part reads, and those before them."""
    parts = {topology.number: topology for topology in steps.sub_topologies}
    found: dict[int, SubTopology] = {}
    left = [part]
    while left:
        internal = set(_topics(left.pop())) & steps.topology.internal_topics.keys()
        for number, one in parts.items():
            written = {node.topic for node in one.nodes if isinstance(node, SinkNode)}
            if internal & written and number not in found:
                found[number] = one
                left.append(one)
    return list(found.values())


def _real_topics(steps: Layout, part: SubTopology) -> set[str]:
    """Return the topics that a part reads and that have offsets, by their names in the cluster."""
    names = [topic for source in part.sources() for topic in steps.topics_of(source)]
    shuffled = steps.topology.internal_topics.keys() - steps.real_topics.keys()
    return {steps.real_topics.get(name, name) for name in names if name not in shuffled}


def _topics(part: SubTopology) -> list[str]:
    return [topic for source in part.sources() for topic in source.topics]
