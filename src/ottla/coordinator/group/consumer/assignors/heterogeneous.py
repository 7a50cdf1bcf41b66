"""The `uniform` assignor where members subscribe to different topics: balanced and sticky.

Each partition goes to the subscribed member with the fewest; then partitions move from a member to
one with at least two fewer, until none can. Each move lowers the sum of the squared counts, so the
moves end; a bound on their number keeps a turn short, too.

Kafka: org.apache.kafka.coordinator.group.assignor.UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.coordinator.group.consumer.assignors.spec import sorted_partitions
from ottla.coordinator.group.slices import SLICE

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.assignors.spec import AssignorInput
    from ottla.coordinator.group.consumer.member import TopicPartitions
    from ottla.coordinator.group.slices import Steps
    from ottla.types import Uuid

_Assignment: TypeAlias = "dict[str, dict[Uuid, set[int]]]"
_MAX_ROUNDS: Final = 16
"""Passes over all topics; the second one already finds few moves."""


def assign_heterogeneous(group: AssignorInput) -> Steps[dict[str, TopicPartitions]]:
    """Assign all partitions of the subscribed topics."""
    readers: dict[Uuid, list[str]] = {}
    for member in group.members:
        for topic_id in member.topic_ids:
            readers.setdefault(topic_id, []).append(member.member_id)
    target: _Assignment = {one.member_id: {} for one in group.members}
    yield
    owner = yield from _keep(group, target)
    counts = {
        name: sum(len(partitions) for partitions in own.values()) for name, own in target.items()
    }
    # Topics with few readers first: their partitions have the fewest places to go.
    order = sorted(readers, key=lambda topic_id: len(readers[topic_id]))
    for topic_id in order:
        indexes = range(group.partition_counts[topic_id])
        left = [index for index in indexes if (topic_id, index) not in owner]
        if left:
            yield
            _spread(topic_id, left, readers[topic_id], target, counts)
    for _ in range(_MAX_ROUNDS):
        has_moved = False
        for topic_id in order:
            yield
            has_moved |= yield from _level(topic_id, readers[topic_id], target, counts)
        if not has_moved:
            break
    found: dict[str, TopicPartitions] = {}
    for name, own in target.items():
        found[name] = sorted_partitions(own)
        if len(found) % SLICE == 0:
            yield
    return found


def _keep(group: AssignorInput, target: _Assignment) -> Steps[dict[tuple[Uuid, int], str]]:
    """Leave with each member what it has and still reads; return the owners."""
    owner: dict[tuple[Uuid, int], str] = {}
    for position, member in enumerate(group.members):
        if position % SLICE == SLICE - 1:
            yield
        read = set(member.topic_ids)
        for topic_id, indexes in member.owned.items():
            if topic_id not in read:
                continue
            for index in indexes:
                key = (topic_id, index)
                if key not in owner and index < group.partition_counts[topic_id]:
                    owner[key] = member.member_id
                    target[member.member_id].setdefault(topic_id, set()).add(index)
    return owner


def _spread(
    topic_id: Uuid,
    indexes: list[int],
    names: list[str],
    target: _Assignment,
    counts: dict[str, int],
) -> None:
    """Give each partition to the reader with the fewest, of several to the first."""
    queue = [(counts[name], position) for position, name in enumerate(names)]
    heapify(queue)
    for index in indexes:
        count, position = queue[0]
        name = names[position]
        target[name].setdefault(topic_id, set()).add(index)
        counts[name] += 1
        heapreplace(queue, (count + 1, position))


def _level(
    topic_id: Uuid, names: list[str], target: _Assignment, counts: dict[str, int]
) -> Steps[bool]:
    """Move partitions of a topic from its fullest readers to its emptiest; whether any moved.

    Of several the first gives or takes. Entries of queues whose count has changed are dropped.
    """
    takers = [(counts[name], position) for position, name in enumerate(names)]
    givers = [
        (-count, position) for count, position in takers if target[names[position]].get(topic_id)
    ]
    heapify(takers)
    heapify(givers)
    moves = 0
    while givers:
        giver = names[givers[0][1]]
        if -givers[0][0] != counts[giver] or not target[giver].get(topic_id):
            heappop(givers)
            continue
        taker = names[takers[0][1]]
        if takers[0][0] != counts[taker]:
            heappop(takers)
            continue
        if counts[giver] - counts[taker] < 2:
            break
        index = max(target[giver][topic_id])
        target[giver][topic_id].remove(index)
        target[taker].setdefault(topic_id, set()).add(index)
        counts[giver] -= 1
        counts[taker] += 1
        for position in (givers[0][1], takers[0][1]):
            heappush(takers, (counts[names[position]], position))
            heappush(givers, (-counts[names[position]], position))
        moves += 1
        if moves % SLICE == 0:
            yield
    return moves > 0
