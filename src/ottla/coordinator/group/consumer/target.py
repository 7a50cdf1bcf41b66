"""The target assignment of a group: what each member should own in the end.

Kafka: org.apache.kafka.coordinator.group.modern.TargetAssignmentBuilder,
GroupMetadataManager.{maybeUpdateTargetAssignment, canComputeNextTargetAssignment} (KIP-1263).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.coordinator.group import slices
from ottla.coordinator.group.consumer import records
from ottla.coordinator.group.consumer.assignors import ASSIGNORS
from ottla.coordinator.group.consumer.assignors.spec import AssignorInput, MemberInput
from ottla.coordinator.group.consumer.subscription import topics_of
from ottla.coordinator.group.slices import SLICE

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.group.consumer.member import ConsumerMember, TopicPartitions
    from ottla.coordinator.group.slices import Steps
    from ottla.coordinator.runtime import CoordinatorRecord
    from ottla.types import Uuid


def update_target(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    group_epoch: int,
    member: ConsumerMember,
    output: list[CoordinatorRecord],
) -> tuple[int, TopicPartitions]:
    """Return the assignment epoch and the target of a member, computed again where it is due.

    That of a large group is computed in slices: until then its members have the last one.
    """
    if not slices.must_compute(groups, group, group_epoch, partial(_compute, groups), records):
        return group.assignment_epoch, group.target_of(member.member_id, member.instance_id)
    members = dict(group.members)
    if member.instance_id is not None:
        replaced = group.static_member_id(member.instance_id)
        if replaced is not None and replaced != member.member_id:
            members.pop(replaced, None)
    members[member.member_id] = member
    target = slices.finish(_compute(groups, group, members))
    for member_id, partitions in target.items():
        if group.target.get(member_id) != partitions:
            output.append(records.target_member(group.group_id, member_id, partitions))
    output.append(records.target_epoch(group.group_id, group_epoch, groups.clock.now_ms()))
    return group_epoch, target.get(member.member_id, {})


def _compute(
    groups: ConsumerGroups, group: ConsumerGroup, members: dict[str, ConsumerMember]
) -> Steps[dict[str, TopicPartitions]]:
    assignors = groups.settings(group.group_id).assignors
    assignor = group.preferred_assignor_at(replaced=members)
    given = yield from _input(groups, group, members)
    return (yield from ASSIGNORS[assignor if assignor in assignors else assignors[0]](given))


def _input(
    groups: ConsumerGroups, group: ConsumerGroup, members: dict[str, ConsumerMember]
) -> Steps[AssignorInput]:
    ids: dict[str, Uuid | None] = {}
    found: list[MemberInput] = []
    for position, member_id in enumerate(sorted(members)):
        if position % SLICE == SLICE - 1:
            yield
        member = members[member_id]
        names = sorted(topics_of(group, member))
        for name in names:
            if name not in ids:
                ids[name] = groups.topics.topic_id(name)
        topic_ids = [one for name in names if (one := ids[name]) is not None]
        owned = group.target_of(member_id, member.instance_id)
        found.append(MemberInput(member_id, member.instance_id, topic_ids, dict(owned)))
    counts = {
        topic_id: groups.topics.partition_count(name) or 0
        for name, topic_id in sorted(ids.items())
        if topic_id is not None
    }
    return AssignorInput(found, counts)
