"""The target assignment of a group: what each member should own in the end.

Kafka: org.apache.kafka.coordinator.group.modern.TargetAssignmentBuilder,
GroupMetadataManager.{maybeUpdateTargetAssignment, canComputeNextTargetAssignment} (KIP-1263).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer import records
from ottla.coordinator.group.consumer.assignors import ASSIGNORS
from ottla.coordinator.group.consumer.assignors.spec import AssignorInput, MemberInput
from ottla.coordinator.group.consumer.subscription import by_topic

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.group.consumer.member import ConsumerMember, TopicPartitions
    from ottla.coordinator.runtime import CoordinatorRecord


def update_target(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    group_epoch: int,
    member: ConsumerMember,
    output: list[CoordinatorRecord],
) -> tuple[int, TopicPartitions]:
    """Return the assignment epoch and the target of a member, computed again where it is due."""
    now_ms = groups.clock.now_ms()
    settings = groups.settings(group.group_id)
    if group_epoch <= group.assignment_epoch or not _is_due(
        group.assignment_timestamp_ms, settings.assignment_interval_ms, now_ms
    ):
        return group.assignment_epoch, group.target_of(member.member_id, member.instance_id)
    members = dict(group.members)
    if member.instance_id is not None:
        replaced = group.static_members.get(member.instance_id)
        if replaced is not None and replaced != member.member_id:
            members.pop(replaced, None)
    members[member.member_id] = member
    assignor = group.preferred_assignor_at(replaced={member.member_id: member})
    if assignor not in settings.assignors:
        assignor = settings.assignors[0]
    target = ASSIGNORS[assignor](_input(groups, group, members))
    for member_id, partitions in target.items():
        if group.target.get(member_id) != partitions:
            output.append(records.target_member(group.group_id, member_id, partitions))
    output.append(records.target_epoch(group.group_id, group_epoch, now_ms))
    return group_epoch, target.get(member.member_id, {})


def _is_due(timestamp_ms: int, interval_ms: int, now_ms: int) -> bool:
    return not timestamp_ms or not interval_ms or now_ms >= timestamp_ms + interval_ms


def _input(
    groups: ConsumerGroups, group: ConsumerGroup, members: dict[str, ConsumerMember]
) -> AssignorInput:
    subscriptions = by_topic(groups, group, members)
    names = sorted({name for one in subscriptions.values() for name in one})
    ids = {name: groups.topics.topic_id(name) for name in names}
    found: list[MemberInput] = []
    for member_id in sorted(members):
        member = members[member_id]
        topic_ids = [ids[name] for name in subscriptions[member_id]]
        owned = group.target_of(member_id, member.instance_id)
        found.append(
            MemberInput(
                member_id, member.instance_id, [one for one in topic_ids if one], dict(owned)
            )
        )
    counts = {
        topic_id: groups.topics.partition_count(name) or 0
        for name, topic_id in ids.items()
        if topic_id is not None
    }
    return AssignorInput(found, counts)
