"""Finds partitions by broker and by log directory without a scan.

Kafka: org.apache.kafka.controller.{BrokersToIsrs, BrokersToElrs} and the sets of imbalanced and of
reassigning partitions in ReplicationControlManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from ottla.metadata.partition import NO_LEADER, RESERVED_DIRECTORIES
from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ottla.metadata.partition import PartitionRegistration
    from ottla.timeline import SnapshotRegistry
    from ottla.types import Uuid

K = TypeVar("K")


class IndexedPartition(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic_id: Uuid
    partition_id: int


_Keys: TypeAlias = "TimelineDict[IndexedPartition, None]"
"""A set in insertion order, so that records come in an order that does not depend on hashes."""


class PartitionIndex:
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
