"""The assignors `uniform`, even and sticky, and `range`.

Where all members have the same subscription, no two differ by more than one partition, and a member
keeps what it has up to its quota. Other groups are balanced as far as subscriptions allow: each
partition goes to the subscribed member with the fewest; then partitions move from a member to
one with at least two fewer, until none can. Each move lowers the sum of the squared counts, so the
moves end; a bound on their number keeps a turn short, too.

Kafka: org.apache.kafka.coordinator.group.assignor.{UniformAssignor,
UniformHomogeneousAssignmentBuilder, UniformHeterogeneousAssignmentBuilder, RangeAssignor};
org.apache.kafka.coordinator.group.api.assignor.{GroupSpec, SubscribedTopicDescriber}.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.coordinator.group.slices import SLICE

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.group import TopicPartitions
    from ottla.coordinator.group.slices import Steps
    from ottla.types import Uuid


class MemberInput(NamedTuple):
    """A member; owned is its previous target assignment."""

    member_id: str
    instance_id: str | None
    topic_ids: list[Uuid]
    owned: TopicPartitions


class AssignorInput(NamedTuple):
    """The members in the order of their ids, and the number of partitions of each topic."""

    members: list[MemberInput]
    partition_counts: dict[Uuid, int]

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return all(member.topic_ids == self.members[0].topic_ids for member in self.members)


def sorted_partitions(assignment: dict[Uuid, set[int]]) -> TopicPartitions:
    """Return an assignment with rising partitions, without topics that have none."""
    return {
        topic_id: tuple(sorted(partitions))
        for topic_id, partitions in assignment.items()
        if partitions
    }


def assign_uniform(group: AssignorInput) -> Steps[dict[str, TopicPartitions]]:
    """Assign all partitions of the subscribed topics."""
    if group.is_homogeneous:
        return _assign_homogeneous(group)
    return _assign_heterogeneous(group)


def _assign_homogeneous(group: AssignorInput) -> Steps[dict[str, TopicPartitions]]:
    if not group.members or not group.members[0].topic_ids:
        return {member.member_id: {} for member in group.members}
    topics = {topic_id: group.partition_counts[topic_id] for topic_id in group.members[0].topic_ids}
    quota, extra = divmod(sum(topics.values()), len(group.members))
    unassigned = {
        (topic_id, index): None for topic_id, count in topics.items() for index in range(count)
    }
    sticky: list[dict[Uuid, set[int]]] = []
    missing: list[int] = []
    revoked: dict[tuple[Uuid, int], None] = {}
    yield
    for position, member in enumerate(group.members):
        if position % SLICE == SLICE - 1:
            yield
        # The members after this one may all need the extra partition: then it is not offered here.
        others = len(group.members) - position - 1
        own, count = _keep(member, unassigned, revoked, quota + (extra > 0))
        is_extra = extra > 0 and (count > quota or others < extra)
        extra -= is_extra
        sticky.append(own)
        missing.append(quota + is_extra - count)
    yield
    free = iter([*(key for key in unassigned if key not in revoked), *revoked])
    target: dict[str, TopicPartitions] = {}
    for member, own, count in zip(group.members, sticky, missing, strict=True):
        for _ in range(count):
            topic_id, index = next(free)
            own.setdefault(topic_id, set()).add(index)
        target[member.member_id] = sorted_partitions(own)
        if len(target) % SLICE == 0:
            yield
    return target


def _keep(
    member: MemberInput,
    left: dict[tuple[Uuid, int], None],
    revoked: dict[tuple[Uuid, int], None],
    limit: int,
) -> tuple[dict[Uuid, set[int]], int]:
    """Take a member's previous partitions out of left, up to the limit; the rest is revoked."""
    own: dict[Uuid, set[int]] = {}
    count = 0
    for topic_id, indexes in member.owned.items():
        for index in indexes:
            if (topic_id, index) not in left:
                continue
            if count == limit:
                revoked[topic_id, index] = None
                continue
            del left[topic_id, index]
            own.setdefault(topic_id, set()).add(index)
            count += 1
    return own, count


def assign_ranges(group: AssignorInput) -> Steps[dict[str, TopicPartitions]]:
    """Split each topic into ranges, in the order of instance ids, then of member ids."""
    members = sorted(group.members, key=_order)
    target: dict[str, dict[Uuid, tuple[int, ...]]] = {member.member_id: {} for member in members}
    readers: dict[Uuid, list[str]] = {}
    for member in members:
        for topic_id in member.topic_ids:
            readers.setdefault(topic_id, []).append(member.member_id)
    for topic_id, names in readers.items():
        yield
        quota, extra = divmod(group.partition_counts[topic_id], len(names))
        start = 0
        for index, name in enumerate(names):
            if index % SLICE == SLICE - 1:
                yield
            end = start + quota + (index < extra)
            if end > start:
                target[name][topic_id] = tuple(range(start, end))
            start = end
    return dict(target)


def _order(member: MemberInput) -> tuple[bool, str, str]:
    return member.instance_id is None, member.instance_id or "", member.member_id


_Assignment: TypeAlias = "dict[str, dict[Uuid, set[int]]]"
_MAX_ROUNDS: Final = 16
"""Passes over all topics; the second one already finds few moves."""


def _assign_heterogeneous(group: AssignorInput) -> Steps[dict[str, TopicPartitions]]:
    """Assign all partitions of the subscribed topics."""
    readers: dict[Uuid, list[str]] = {}
    for member in group.members:
        for topic_id in member.topic_ids:
            readers.setdefault(topic_id, []).append(member.member_id)
    target: _Assignment = {member.member_id: {} for member in group.members}
    yield
    owner = yield from _keep_sticky(group, target)
    counts = {
        name: sum(len(partitions) for partitions in own.values()) for name, own in target.items()
    }
    # Topics with few readers first: their partitions have the fewest places to go.
    order = sorted(readers, key=lambda topic_id: len(readers[topic_id]))
    for topic_id in order:
        indexes = range(group.partition_counts[topic_id])
        unassigned = [index for index in indexes if (topic_id, index) not in owner]
        if unassigned:
            yield
            _spread(topic_id, unassigned, readers[topic_id], target, counts)
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


def _keep_sticky(group: AssignorInput, target: _Assignment) -> Steps[dict[tuple[Uuid, int], str]]:
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
