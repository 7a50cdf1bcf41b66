"""Members that leave, for good or as static members for a time.

Kafka: GroupMetadataManager.{consumerGroupLeave, consumerGroupStaticMemberGroupLeave}.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer.member import LEAVE_STATIC_EPOCH, EpochsByPartition
from ottla.coordinator.group.consumer.validation import static_member
from ottla.coordinator.runtime.result import Result
from ottla.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.kind import ConsumerGroups


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
            return Result(response, [groups.current_assignment(group.group_id, away)])
    return groups.fence(group, [member], response)


def _from_epoch_zero(assigned: EpochsByPartition) -> EpochsByPartition:
    return {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in assigned.items()}
