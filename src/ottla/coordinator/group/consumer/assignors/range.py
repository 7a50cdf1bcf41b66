"""The `range` assignor: each member takes the same range of every topic.

Kafka: org.apache.kafka.coordinator.group.assignor.RangeAssignor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.slices import SLICE

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.assignors.spec import AssignorInput, MemberInput
    from ottla.coordinator.group.consumer.member import TopicPartitions
    from ottla.coordinator.group.slices import Steps
    from ottla.types import Uuid


def assign_ranges(group: AssignorInput) -> Steps[dict[str, TopicPartitions]]:
    """Split each topic into ranges, in the order of instance ids, then of member ids."""
    members = sorted(group.members, key=_order)
    target: dict[str, dict[Uuid, tuple[int, ...]]] = {one.member_id: {} for one in members}
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
