"""The target assignment of a share group: initialised partitions only.

Kafka: TargetAssignmentBuilder.ShareTargetAssignmentBuilder,
GroupMetadataManager.maybeUpdateTargetAssignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.share import records
from ottla.coordinator.group.share.assignor import assign_simple
from ottla.coordinator.group.share.group import StatePartitions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.coordinator.group.share.group import ShareGroup
    from ottla.coordinator.group.share.groups import ShareGroups
    from ottla.coordinator.group.share.member import ShareMember
    from ottla.coordinator.runtime import CoordinatorRecord
    from ottla.types import Uuid


def update_target(
    groups: ShareGroups,
    group: ShareGroup,
    group_epoch: int,
    member: ShareMember,
    output: list[CoordinatorRecord],
) -> tuple[int, Mapping[Uuid, tuple[int, ...]]]:
    """Return the assignment epoch and the target of a member, computed again where it is due."""
    now_ms = groups.clock.now_ms()
    settings = groups.settings(group.group_id)
    if group.assignment_epoch >= group_epoch or not _is_due(
        group.assignment_timestamp_ms, settings.assignment_interval_ms, now_ms
    ):
        return group.assignment_epoch, group.target.get(member.member_id, {})
    members = {**group.members, member.member_id: member}
    known = group.state_partitions or StatePartitions()
    target = assign_simple(
        {key: _topic_ids(groups, one.subscribed_topics) for key, one in members.items()},
        {topic_id: one.partitions for topic_id, one in known.initialized.items()},
        dict(group.target),
    )
    output += (
        records.target_member(group.group_id, member_id, target[member_id])
        for member_id in sorted(target)
        if group.target.get(member_id) != target[member_id]
    )
    output.append(records.target_epoch(group.group_id, group_epoch, now_ms))
    return group_epoch, target[member.member_id]


def _is_due(timestamp_ms: int, interval_ms: int, now_ms: int) -> bool:
    return not timestamp_ms or not interval_ms or now_ms >= timestamp_ms + interval_ms


def _topic_ids(groups: ShareGroups, names: tuple[str, ...]) -> tuple[Uuid, ...]:
    found = (groups.topics.topic_id(name) for name in names)
    return tuple(topic_id for topic_id in found if topic_id is not None)
