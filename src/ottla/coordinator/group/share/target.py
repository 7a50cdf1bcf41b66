"""The target assignment of a share group: initialised partitions only.

Kafka: TargetAssignmentBuilder.ShareTargetAssignmentBuilder,
GroupMetadataManager.maybeUpdateTargetAssignment.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ottla.coordinator.group import slices
from ottla.coordinator.group.share import records
from ottla.coordinator.group.share.assignor import assign_simple
from ottla.coordinator.group.share.group import StatePartitions
from ottla.coordinator.group.slices import SLICE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.coordinator.group.share.group import ShareGroup
    from ottla.coordinator.group.share.groups import ShareGroups
    from ottla.coordinator.group.share.member import ShareMember
    from ottla.coordinator.group.slices import Steps
    from ottla.coordinator.runtime import CoordinatorRecord
    from ottla.types import Uuid

Partitions: TypeAlias = "Mapping[Uuid, tuple[int, ...]]"


def update_target(
    groups: ShareGroups,
    group: ShareGroup,
    group_epoch: int,
    member: ShareMember,
    output: list[CoordinatorRecord],
) -> tuple[int, Partitions]:
    """Return the assignment epoch and the target of a member, computed again where it is due.

    That of a large group is computed in slices: until then its members have the last one.
    """
    if not slices.must_compute(groups, group, group_epoch, partial(_compute, groups), records):
        return group.assignment_epoch, group.target.get(member.member_id, {})
    members = {**group.members, member.member_id: member}
    target = slices.finish(_compute(groups, group, members))
    output += (
        records.target_member(group.group_id, member_id, target[member_id])
        for member_id in sorted(target)
        if group.target.get(member_id) != target[member_id]
    )
    output.append(records.target_epoch(group.group_id, group_epoch, groups.clock.now_ms()))
    return group_epoch, target[member.member_id]


def _compute(
    groups: ShareGroups, group: ShareGroup, members: Mapping[str, ShareMember]
) -> Steps[Mapping[str, Partitions]]:
    known = group.state_partitions or StatePartitions()
    subscriptions = {}
    for position, (member_id, one) in enumerate(members.items()):
        if position % SLICE == SLICE - 1:
            yield
        subscriptions[member_id] = _topic_ids(groups, one.subscribed_topics)
    partitions = {topic_id: one.partitions for topic_id, one in known.initialized.items()}
    return (yield from assign_simple(subscriptions, partitions, dict(group.target.items())))


def _topic_ids(groups: ShareGroups, names: tuple[str, ...]) -> tuple[Uuid, ...]:
    found = (groups.topics.topic_id(name) for name in names)
    return tuple(topic_id for topic_id in found if topic_id is not None)
