"""Members that leave, for good or as static members for a time.

Kafka: GroupMetadataManager.{consumerGroupLeave, consumerGroupStaticMemberGroupLeave,
consumerGroupFenceMembers}.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ottla.coordinator.group.consumer import records
from ottla.coordinator.group.consumer.member import LEAVE_STATIC_EPOCH, EpochsByPartition
from ottla.coordinator.group.consumer.subscription import metadata_hash, subscribed_topics
from ottla.coordinator.group.consumer.validation import static_member
from ottla.coordinator.runtime.result import CoordinatorRecord, Result, replace_response
from ottla.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.group.consumer.member import ConsumerMember


T = TypeVar("T")


def leave(
    groups: ConsumerGroups, request: ConsumerGroupHeartbeatRequest
) -> Result[ConsumerGroupHeartbeatResponse]:
    """Remove a member; one that leaves for a time keeps its partitions for its session."""
    group = groups.to_leave(request.group_id)
    response = ConsumerGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=0,
    )
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = static_member(group, request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            away = replace(
                member,
                member_epoch=LEAVE_STATIC_EPOCH,
                assigned=_from_epoch_zero(member.assigned),
                pending_revocation={},
            )
            return Result(response, [records.current_assignment(group.group_id, away)])
    return fence(groups, group, [member], response)


def _from_epoch_zero(assigned: EpochsByPartition) -> EpochsByPartition:
    return {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in assigned.items()}


def fence(
    groups: ConsumerGroups, group: ConsumerGroup, members: Sequence[ConsumerMember], response: T
) -> Result[T]:
    """Remove members; the group becomes a classic one if only classic members are left."""
    if not members:
        return Result(response)
    downgraded = groups.downgrade(group, members)
    if downgraded is None:
        return Result(response, _remove_members(groups, group, members))
    return replace_response(downgraded, response)


def _remove_members(
    groups: ConsumerGroups, group: ConsumerGroup, members: Sequence[ConsumerMember]
) -> list[CoordinatorRecord]:
    """Return the records that remove members and raise the group epoch; end their timers."""
    group_id = group.group_id
    output: list[CoordinatorRecord] = []
    for member in members:
        output += records.member_tombstones(group_id, member.member_id)
    left = dict(group.regex_counts)
    for member in members:
        pattern = member.subscribed_regex
        if pattern:
            left[pattern] = left.get(pattern, 0) - 1
    output += [
        records.regex_tombstone(group_id, pattern)
        for pattern in group.resolved
        if left.get(pattern, 0) <= 0
    ]
    names = subscribed_topics(group, removed=members)
    output.append(records.group_epoch(group_id, group.epoch + 1, metadata_hash(groups, names)))
    for member in members:
        groups.cancel_timers(group_id, member.member_id)
    return output
