"""Tasks of a member: a subtopology and a partition; active, standby and warm-up.

Kafka: org.apache.kafka.coordinator.group.streams.{TasksTuple, TasksTupleWithEpochs}.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TaskMap: TypeAlias = "Mapping[str, tuple[int, ...]]"
"""Partitions by subtopology, rising."""
EpochMap: TypeAlias = "Mapping[str, Mapping[int, int]]"
"""Partitions by subtopology, each with the epoch in which it was assigned (KIP-1251)."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks of a target assignment, or those that a member says it owns."""

    active: TaskMap = field(default_factory=dict)
    standby: TaskMap = field(default_factory=dict)
    warmup: TaskMap = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are none of any kind."""
        return not (self.active or self.standby or self.warmup)

    def has_any_of(self, other: AssignedTasks) -> bool:
        """Whether a task is in both, as the same kind."""
        return (
            _overlap(self.active, other.active)
            or _overlap(self.standby, other.standby)
            or _overlap(self.warmup, other.warmup)
        )


@dataclass(frozen=True, slots=True)
class AssignedTasks:
    """Tasks of a member's current assignment; active ones with their assignment epochs."""

    active: EpochMap = field(default_factory=dict)
    standby: TaskMap = field(default_factory=dict)
    warmup: TaskMap = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are none of any kind."""
        return not (self.active or self.standby or self.warmup)

    def merge(self, other: AssignedTasks) -> AssignedTasks:
        """Return the tasks of both."""
        active = {key: dict(value) for key, value in self.active.items()}
        for key, epochs in other.active.items():
            active.setdefault(key, {}).update(epochs)
        return AssignedTasks(
            {key: dict(sorted(value.items())) for key, value in active.items()},
            _union(self.standby, other.standby),
            _union(self.warmup, other.warmup),
        )


def _overlap(
    tasks: TaskMap, others: Mapping[str, tuple[int, ...]] | Mapping[str, Mapping[int, int]]
) -> bool:
    return any(
        partition in others.get(subtopology_id, ())
        for subtopology_id, partitions in tasks.items()
        for partition in partitions
    )


def _union(first: TaskMap, second: TaskMap) -> TaskMap:
    return {
        key: tuple(sorted({*first.get(key, ()), *second.get(key, ())}))
        for key in dict.fromkeys((*first, *second))
    }


def task_map(pairs: Iterable[tuple[str, Iterable[int]]]) -> TaskMap:
    """Return partitions by subtopology, sorted and without duplicates."""
    return {key: tuple(sorted(set(partitions))) for key, partitions in pairs}


def without_epochs(tasks: EpochMap) -> TaskMap:
    """Return the tasks alone."""
    return task_map(tasks.items())
