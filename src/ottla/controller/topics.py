"""Topics and partitions in the controller, and the validation of topic names.

Kafka: the replayed half of org.apache.kafka.controller.ReplicationControlManager;
org.apache.kafka.common.internals.Topic; org.apache.kafka.controller.{BrokersToIsrs,
BrokersToElrs} and the sets of imbalanced and of reassigning partitions in
ReplicationControlManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.metadata.partition import (
    NO_LEADER,
    RESERVED_DIRECTORIES,
    PartitionRegistration,
    registration_of,
)
from ottla.timeline import TimelineDict
from ottla.types import topic_name_problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from ottla.protocol.records.metadata import (
        ClearElrRecord,
        PartitionChangeRecord,
        PartitionRecord,
        RemoveTopicRecord,
        TopicRecord,
    )
    from ottla.timeline import SnapshotRegistry
    from ottla.types import Uuid


K = TypeVar("K")


class IndexedPartition(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic_id: Uuid
    partition_id: int


_Keys: TypeAlias = "TimelineDict[IndexedPartition, None]"
"""A set in insertion order, so that records come in an order that does not depend on hashes."""


class _PartitionIndex:
    """Only replay changes it, with the partitions themselves."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._in_sync: dict[int, _Keys] = {}
        self._eligible: dict[int, _Keys] = {}
        self._led: dict[int, _Keys] = {}
        self._directories: dict[Uuid, _Keys] = {}
        self._imbalanced: _Keys = TimelineDict(registry)
        self._reassigning: _Keys = TimelineDict(registry)

    def in_sync(self, broker_id: int) -> list[IndexedPartition]:
        """Return the partitions with the broker in the ISR."""
        return list(self._in_sync.get(broker_id, ()))

    def eligible(self, broker_id: int) -> list[IndexedPartition]:
        """Return the partitions with the broker among the eligible leader replicas."""
        return list(self._eligible.get(broker_id, ()))

    def leads(self, broker_id: int) -> bool:
        """Whether the broker leads any partition."""
        return bool(self._led.get(broker_id))

    def leaderless(self) -> list[IndexedPartition]:
        """Return the partitions without a leader."""
        return list(self._led.get(NO_LEADER, ()))

    def in_directory(self, directory: Uuid) -> list[IndexedPartition]:
        """Return the partitions with a replica in a log directory."""
        return list(self._directories.get(directory, ()))

    @property
    def imbalanced(self) -> Collection[IndexedPartition]:
        """The partitions that their preferred replica does not lead."""
        return self._imbalanced

    @property
    def reassigning(self) -> Collection[IndexedPartition]:
        """The partitions with a reassignment in progress."""
        return self._reassigning

    def update(
        self,
        key: IndexedPartition,
        old: PartitionRegistration | None,
        new: PartitionRegistration | None,
    ) -> None:
        """Replace a partition; None where there is none."""
        self._move(self._in_sync, key, old.isr if old else (), new.isr if new else ())
        self._move(
            self._eligible,
            key,
            old.eligible_leader_replicas if old else (),
            new.eligible_leader_replicas if new else (),
        )
        self._move(self._led, key, (old.leader,) if old else (), (new.leader,) if new else ())
        self._move(
            self._directories, key, old.directories if old else (), new.directories if new else ()
        )
        _mark(self._imbalanced, key, is_in=new is not None and new.leader != new.preferred_replica)
        _mark(self._reassigning, key, is_in=new is not None and new.is_reassigning)

    def _move(
        self, index: dict[K, Any], key: IndexedPartition, old: Sequence[K], new: Sequence[K]
    ) -> None:
        if old == new:
            return
        for found in old:
            if found not in new and found not in RESERVED_DIRECTORIES:
                index[found].pop(key, None)
        for found in new:
            if found not in old and found not in RESERVED_DIRECTORIES:
                keys = index.get(found)
                if keys is None:
                    keys = index[found] = TimelineDict(self._registry)
                keys[key] = None


def _mark(keys: _Keys, key: IndexedPartition, *, is_in: bool) -> None:
    if is_in:
        if key not in keys:
            keys[key] = None
    elif key in keys:
        del keys[key]


def check_topic_name(name: str) -> None:
    """Raise KafkaError INVALID_TOPIC_EXCEPTION with Kafka's text for an illegal name."""
    reason = topic_name_problem(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def _unify_collision_characters(name: str) -> str:
    """Return the name as in metrics: topics with equal results collide."""
    return name.replace(".", "_")


def _has_collision_characters(name: str) -> bool:
    """Whether the name can collide with another one."""
    return "." in name or "_" in name


class Located(NamedTuple):
    """A partition and where it is."""

    topic: TopicState
    partition_id: int
    partition: PartitionRegistration


class TopicState:
    """One incarnation of a topic."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, registry: SnapshotRegistry, name: str, topic_id: Uuid) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: TimelineDict[int, PartitionRegistration] = TimelineDict(registry)


class Topics:
    """All topics; only replay changes them."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._ids: TimelineDict[str, Uuid] = TimelineDict(registry)
        self._topics: TimelineDict[Uuid, TopicState] = TimelineDict(registry)
        self._similar: TimelineDict[str, tuple[str, ...]] = TimelineDict(registry)
        self.index = _PartitionIndex(registry)

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[TopicState]:
        return iter(list(self._topics.values()))

    def by_name(self, name: str) -> TopicState | None:
        """Return the topic of this name."""
        topic_id = self._ids.get(name)
        return None if topic_id is None else self._topics[topic_id]

    def by_id(self, topic_id: Uuid) -> TopicState | None:
        """Return the topic of this id."""
        topic: TopicState | None = self._topics.get(topic_id)
        return topic

    def colliding(self, name: str) -> str | None:
        """Return an existing topic with the same name in metrics."""
        if not _has_collision_characters(name):
            return None
        names: tuple[str, ...] = self._similar.get(_unify_collision_characters(name), ())
        return names[0] if names else None

    def located(self, keys: Iterable[IndexedPartition]) -> list[Located]:
        """Return partitions by their keys; those that were deleted meanwhile are left out."""
        partitions = []
        for topic_id, partition_id in keys:
            topic = self._topics.get(topic_id)
            if topic is not None and partition_id in topic.partitions:
                partitions.append(Located(topic, partition_id, topic.partitions[partition_id]))
        return partitions

    # Replay

    def replay_topic(self, record: TopicRecord) -> None:
        """Add a topic."""
        if record.name in self._ids:
            raise CorruptMessage(f"Found duplicate TopicRecord for {record.name}")
        self._ids[record.name] = record.topic_id
        self._topics[record.topic_id] = TopicState(self._registry, record.name, record.topic_id)
        if _has_collision_characters(record.name):
            unified = _unify_collision_characters(record.name)
            self._similar[unified] = (*self._similar.get(unified, ()), record.name)

    def replay_partition(self, record: PartitionRecord) -> None:
        """Add a partition or replace it whole."""
        self._put(record.topic_id, record.partition_id, registration_of(record))

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """Change a partition."""
        old = self._topic(record.topic_id).partitions[record.partition_id]
        self._put(record.topic_id, record.partition_id, old.merge(record))

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Empty the eligible leaders of one topic, or of all when the name is empty."""
        for topic in [self.by_name(record.topic_name)] if record.topic_name else self:
            if topic is None:
                raise CorruptMessage(
                    f"Unable to find a topic named {record.topic_name} in order to clear its ELRs."
                )
            for partition_id, old in list(topic.partitions.items()):
                new = old.without_elr()
                if new is not old:
                    self._put(topic.topic_id, partition_id, new)

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """Remove a topic; return the name it had."""
        topic = self._topic(record.topic_id)
        for partition_id, partition in topic.partitions.items():
            self.index.update(IndexedPartition(topic.topic_id, partition_id), partition, None)
        del self._topics[record.topic_id]
        del self._ids[topic.name]
        if _has_collision_characters(topic.name):
            unified = _unify_collision_characters(topic.name)
            others = tuple(name for name in self._similar[unified] if name != topic.name)
            if others:
                self._similar[unified] = others
            else:
                del self._similar[unified]
        return topic.name

    def _put(self, topic_id: Uuid, partition_id: int, new: PartitionRegistration) -> None:
        partitions = self._topic(topic_id).partitions
        self.index.update(
            IndexedPartition(topic_id, partition_id), partitions.get(partition_id), new
        )
        partitions[partition_id] = new

    def _topic(self, topic_id: Uuid) -> TopicState:
        topic: TopicState | None = self._topics.get(topic_id)
        if topic is None:
            raise CorruptMessage(f"Can't find topic with ID {topic_id}")
        return topic
