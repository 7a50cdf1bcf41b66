"""The `uniform` assignor: even and sticky.

Where all members have the same subscription, no two differ by more than one partition, and a member
keeps what it has up to its quota. Other groups are balanced as far as subscriptions allow: see
`heterogeneous`.

Kafka: org.apache.kafka.coordinator.group.assignor.{UniformAssignor,
UniformHomogeneousAssignmentBuilder}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer.assignors.heterogeneous import assign_heterogeneous
from ottla.coordinator.group.consumer.assignors.spec import sorted_partitions
from ottla.coordinator.group.slices import SLICE

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.assignors.spec import AssignorInput, MemberInput
    from ottla.coordinator.group.consumer.member import TopicPartitions
    from ottla.coordinator.group.slices import Steps
    from ottla.types import Uuid


def assign_uniform(group: AssignorInput) -> Steps[dict[str, TopicPartitions]]:
    """Assign all partitions of the subscribed topics."""
    if group.is_homogeneous:
        return _assign_homogeneous(group)
    return assign_heterogeneous(group)


def _assign_homogeneous(group: AssignorInput) -> Steps[dict[str, TopicPartitions]]:
    if not group.members or not group.members[0].topic_ids:
        return {one.member_id: {} for one in group.members}
    topics = {topic_id: group.partition_counts[topic_id] for topic_id in group.members[0].topic_ids}
    quota, extra = divmod(sum(topics.values()), len(group.members))
    left = {(topic_id, index): None for topic_id, count in topics.items() for index in range(count)}
    kept: list[dict[Uuid, set[int]]] = []
    missing: list[int] = []
    revoked: dict[tuple[Uuid, int], None] = {}
    yield
    for position, member in enumerate(group.members):
        if position % SLICE == SLICE - 1:
            yield
        # The members after this one may all need the extra partition: then it is not offered here.
        others = len(group.members) - position - 1
        own, count = _keep(member, left, revoked, quota + (extra > 0))
        is_extra = extra > 0 and (count > quota or others < extra)
        extra -= is_extra
        kept.append(own)
        missing.append(quota + is_extra - count)
    yield
    free = iter([*(key for key in left if key not in revoked), *revoked])
    target: dict[str, TopicPartitions] = {}
    for member, own, count in zip(group.members, kept, missing, strict=True):
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
