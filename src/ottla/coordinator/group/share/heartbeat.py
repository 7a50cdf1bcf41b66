"""ShareGroupHeartbeat: validation; join, stay, change the subscription, leave.

Kafka: GroupMetadataManager.{shareGroupHeartbeat, shareGroupLeave, shareGroupFenceMember,
scheduleShareGroupSessionTimeout};
GroupCoordinatorService.throwIfShareGroupHeartbeatRequestIsInvalid,
GroupMetadataManager.{throwIfShareGroupIsFull, throwIfShareGroupMemberEpochIsInvalid}.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.group.member_group import JOIN_EPOCH, LEAVE_EPOCH
from ottla.coordinator.group.responses import fenced_epoch, full_group, require_filled
from ottla.coordinator.group.share import initialization
from ottla.coordinator.group.share.group import ShareMember
from ottla.coordinator.runtime.shard import Result
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from ottla.coordinator.group.context import RequestContext
    from ottla.coordinator.group.group_kind import Target
    from ottla.coordinator.group.share.group import ShareGroup
    from ottla.coordinator.group.share.initialization import Initialization
    from ottla.coordinator.group.share.kind import ShareGroups
    from ottla.coordinator.runtime import CoordinatorRecord


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


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the member is at this epoch, or was before the last one."""
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    if epoch > member.member_epoch:
        raise fenced_epoch("share", "greater", epoch, member.member_epoch)
    previous = member.previous_member_epoch
    if epoch != previous:
        detail = f", and it does not match the previous member epoch ({previous})"
        raise fenced_epoch("share", "smaller", epoch, member.member_epoch, detail)


class Heartbeat(NamedTuple):
    """The response, and the share partitions that are to be initialised after it."""

    response: ShareGroupHeartbeatResponse
    initialization: Initialization | None = None


def heartbeat(
    groups: ShareGroups,
    group: ShareGroup | None,
    request: ShareGroupHeartbeatRequest,
    context: RequestContext,
) -> Result[Heartbeat]:
    """Apply a heartbeat whose request is valid; group is the one that it names, if it exists."""
    group_id, epoch = request.group_id, request.member_epoch
    if epoch == LEAVE_EPOCH:
        return _leave(groups, request)
    is_joining = epoch == JOIN_EPOCH
    if group is None:
        group = groups.new(group_id) if is_joining else groups.get(group_id)
    limit = groups.settings(group_id).max_size
    if len(group.members) >= limit and request.member_id not in group.members:
        raise full_group("share", limit)
    is_new = is_joining and request.member_id not in group.members
    member = ShareMember(request.member_id) if is_new else group.member(request.member_id)
    _check_epoch(member, epoch)
    output: list[CoordinatorRecord] = []
    updated = _with_request(member, request, context)
    has_changed = updated.subscribed_topics != member.subscribed_topics
    if updated != member:
        output.append(groups.member_metadata(group_id, updated))
    if group.assignment_epoch >= group.epoch:
        has_changed |= initialization.is_assignment_due(group)
    is_settled = not has_changed and group.is_fresh and initialization.is_complete(group)
    topics: set[str] = set()
    if not is_settled:
        topics = group.subscribed_topics(
            updated.subscribed_topics, () if is_new else member.subscribed_topics
        )
    group_epoch, has_changed = _group_epoch(groups, group, topics, output, has_changed=has_changed)
    target = groups.update_target(group, group_epoch, updated, output)
    reconciled = _reconciled(groups, updated, target, has_changed=has_changed)
    if reconciled != updated:
        output.append(groups.current_assignment(group_id, reconciled))
    groups.follow(group_id, member)
    response = _response(groups, request, member, reconciled)
    begun = None
    if not is_settled:
        begun = initialization.begin(groups, group, group_epoch, topics, output)
    on_commit = None if begun is None else begun.written
    return Result(Heartbeat(response, begun), output, on_commit=on_commit)


def _with_request(
    member: ShareMember, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareMember:
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=request.rack_id or member.rack_id,
        subscribed_topics=(
            member.subscribed_topics if names is None else tuple(sorted(dict.fromkeys(names)))
        ),
        client_id=context.client_id,
        client_host=context.client_host,
    )


def _group_epoch(
    groups: ShareGroups,
    group: ShareGroup,
    topics: set[str],
    output: list[CoordinatorRecord],
    *,
    has_changed: bool,
) -> tuple[int, bool]:
    """Return the group epoch and whether it was raised: a change, also of the topics' metadata."""
    if not has_changed and group.is_fresh:
        return group.epoch, False
    new_hash = groups.hashes.of(topics)
    epoch = group.epoch
    has_changed |= new_hash != group.metadata_hash
    if has_changed:
        epoch += 1
        groups.rebalances += 1
        output.append(groups.group_epoch(group.group_id, epoch, new_hash))
    group.fresh_epoch = epoch
    return epoch, has_changed


def _reconciled(
    groups: ShareGroups,
    member: ShareMember,
    target: Target,
    *,
    has_changed: bool,
) -> ShareMember:
    """Return the member at the target; partitions move at once, no member has to give them up."""
    if target.epoch != member.member_epoch:
        return replace(
            member,
            previous_member_epoch=member.member_epoch,
            member_epoch=target.epoch,
            assigned=dict(target.assignment),
        )
    if not has_changed:
        return member
    subscribed = {
        topic_id: indexes
        for topic_id, indexes in member.assigned.items()
        if groups.topics.topic_name(topic_id) in member.subscribed_topics
    }
    return member if subscribed == member.assigned else replace(member, assigned=subscribed)


def _response(
    groups: ShareGroups,
    request: ShareGroupHeartbeatRequest,
    member: ShareMember,
    reconciled: ShareMember,
) -> ShareGroupHeartbeatResponse:
    """Return the response; the assignment is in it where the client cannot know it."""
    response = ShareGroupHeartbeatResponse(
        member_id=reconciled.member_id,
        member_epoch=reconciled.member_epoch,
        heartbeat_interval_ms=groups.settings(request.group_id).heartbeat_interval_ms,
    )
    is_full = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
    if is_full or reconciled.assigned != member.assigned:
        response.assignment = ShareGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in reconciled.assigned.items()
            ]
        )
    return response


# -------------------------------------------------------------------- the end of a member


def _leave(groups: ShareGroups, request: ShareGroupHeartbeatRequest) -> Result[Heartbeat]:
    group = groups.to_leave(request.group_id)
    member = group.member(request.member_id)
    response = ShareGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=LEAVE_EPOCH, heartbeat_interval_ms=0
    )
    return Result(Heartbeat(response), groups.removal_records(group, member))
