"""The `uniform` assignor where members subscribe to different topics: balanced and sticky.

Each partition goes to the subscribed member with the fewest; then partitions move from a member to
one with at least two fewer, until none can. Each move lowers the sum of the squared counts, so the
moves end; a bound on their number keeps a turn short, too.

Kafka: org.apache.kafka.coordinator.group.assignor.UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.coordinator.group.consumer.assignors.spec import sorted_partitions

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.assignors.spec import AssignorInput
    from ottla.coordinator.group.consumer.member import TopicPartitions
    from ottla.types import Uuid

_Assignment: TypeAlias = "dict[str, dict[Uuid, set[int]]]"
_MAX_ROUNDS: Final = 16
"""Passes over all topics; the second one already finds few moves."""


def assign_heterogeneous(group: AssignorInput) -> dict[str, TopicPartitions]:
    """Assign all partitions of the subscribed topics."""
    readers: dict[Uuid, list[str]] = {}
    for member in group.members:
        for topic_id in member.topic_ids:
            readers.setdefault(topic_id, []).append(member.member_id)
    target: _Assignment = {one.member_id: {} for one in group.members}
    owner = _keep(group, readers, target)
    counts = {
        name: sum(len(partitions) for partitions in own.values()) for name, own in target.items()
    }
    # Topics with few readers first: their partitions have the fewest places to go.
    order = sorted(readers, key=lambda topic_id: len(readers[topic_id]))
    for topic_id in order:
        for index in range(group.partition_counts[topic_id]):
            if (topic_id, index) not in owner:
                name = min(readers[topic_id], key=counts.__getitem__)
                target[name].setdefault(topic_id, set()).add(index)
                counts[name] += 1
    for _ in range(_MAX_ROUNDS):
        moved = [_level(topic_id, readers[topic_id], target, counts) for topic_id in order]
        if not any(moved):
            break
    return {name: sorted_partitions(own) for name, own in target.items()}


def _keep(
    group: AssignorInput, readers: dict[Uuid, list[str]], target: _Assignment
) -> dict[tuple[Uuid, int], str]:
    """Leave with each member what it has and still reads; return the owners."""
    owner: dict[tuple[Uuid, int], str] = {}
    for member in group.members:
        for topic_id, indexes in member.owned.items():
            if member.member_id not in readers.get(topic_id, ()):
                continue
            for index in indexes:
                key = (topic_id, index)
                if key not in owner and index < group.partition_counts[topic_id]:
                    owner[key] = member.member_id
                    target[member.member_id].setdefault(topic_id, set()).add(index)
    return owner


def _level(topic_id: Uuid, names: list[str], target: _Assignment, counts: dict[str, int]) -> bool:
    """Move partitions of a topic from its fullest readers to its emptiest; whether any moved."""
    has_moved = False
    while True:
        givers = [name for name in names if target[name].get(topic_id)]
        if not givers:
            return has_moved
        giver = max(givers, key=counts.__getitem__)
        taker = min(names, key=counts.__getitem__)
        if counts[giver] - counts[taker] < 2:
            return has_moved
        index = max(target[giver][topic_id])
        target[giver][topic_id].remove(index)
        target[taker].setdefault(topic_id, set()).add(index)
        counts[giver] -= 1
        counts[taker] += 1
        has_moved = True
