"""What a heartbeat must look like, and which member may send it.

Kafka: GroupCoordinatorService.throwIfShareGroupHeartbeatRequestIsInvalid,
GroupMetadataManager.{throwIfShareGroupIsFull, throwIfShareGroupMemberEpochIsInvalid}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.checks import fenced_epoch, full_group, require_filled
from ottla.coordinator.group.share.group import JOIN_EPOCH, LEAVE_EPOCH, ShareMember
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.share.group import ShareGroup
    from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST."""
    if not request.member_id.strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST)  # without a text, as Kafka's
    require_filled(request.group_id, "GroupId")
    require_filled(request.rack_id, "RackId")
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            text = "SubscribedTopicNames must be set in first request."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    elif request.member_epoch < LEAVE_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")


def check_size(group: ShareGroup, member_id: str, limit: int) -> None:
    """Raise GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    if len(group.members) >= limit and member_id not in group.members:
        raise full_group("share", limit)


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the member is at this epoch, or was before the last one."""
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    if epoch > member.member_epoch:
        raise fenced_epoch("share", "greater", epoch, member.member_epoch)
    previous = member.previous_member_epoch
    if epoch != previous:
        detail = f", and it does not match the previous member epoch ({previous})"
        raise fenced_epoch("share", "smaller", epoch, member.member_epoch, detail)
