"""Requests of each protocol, by the kind of the group: one look-up decides who answers.

A group changes its kind where an empty one is joined by another protocol, and by online migration.

Kafka: GroupMetadataManager.{getOrMaybeCreateConsumerGroup, getOrCreateStreamsGroup,
getOrMaybeCreateShareGroup, maybeDeleteEmptyClassicGroup, classicGroupJoin, classicGroupSync,
classicGroupHeartbeat, classicGroupLeave}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.classic import join as classic_join
from ottla.coordinator.group.classic import membership
from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.consumer import heartbeat as consumer
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.member_group import JOIN_EPOCH
from ottla.coordinator.group.migration import classic_members as member_join
from ottla.coordinator.group.migration.conversion import upgrade
from ottla.coordinator.group.share import heartbeat as share
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.streams import heartbeat as streams
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.join import Join
    from ottla.coordinator.group.context import RequestContext
    from ottla.coordinator.group.groups import AnyGroup, Groups
    from ottla.coordinator.runtime import Result
    from ottla.protocol.apis.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from ottla.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
    from ottla.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
    from ottla.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest
    from ottla.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
    from ottla.purgatory.pending import Pending


# ---------------------------------------------------------------- heartbeats with epochs


def consumer_heartbeat(
    groups: Groups, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Result[ConsumerGroupHeartbeatResponse]:
    """Apply a ConsumerGroupHeartbeat; a classic group becomes a consumer group where it joins."""
    group = groups.find(request.group_id)
    if group is None or type(group) is ConsumerGroup:
        return consumer.heartbeat(groups.consumer, group, request, context)
    if request.member_epoch != JOIN_EPOCH or not isinstance(group, ClassicGroup):
        raise _other_kind(request.group_id, "consumer")
    if group.is_empty:
        result = consumer.heartbeat(groups.consumer, None, request, context)
        result.records[:0] = groups.tombstones(group)
        return result
    upgraded, written = upgrade(groups, group)
    result = consumer.heartbeat(groups.consumer, upgraded, request, context)
    result.records[:0] = written
    result.on_commit = lambda _offset: groups.classic.discard(group)
    return result


def streams_heartbeat(
    groups: Groups, request: StreamsGroupHeartbeatRequest, context: RequestContext
) -> Result[streams.HeartbeatResult]:
    """Apply a StreamsGroupHeartbeat; an empty classic group becomes a streams group."""
    group = groups.find(request.group_id)
    if group is None or type(group) is StreamsGroup:
        return streams.heartbeat(groups.streams, group, request, context)
    is_replaced = isinstance(group, ClassicGroup) and group.is_empty
    if request.member_epoch != JOIN_EPOCH or not is_replaced:
        raise _other_kind(request.group_id, "streams")
    result = streams.heartbeat(groups.streams, None, request, context)
    result.records[:0] = groups.tombstones(group)
    return result


def share_heartbeat(
    groups: Groups, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> Result[share.Heartbeat]:
    """Apply a ShareGroupHeartbeat."""
    group = groups.find(request.group_id)
    if group is None or type(group) is ShareGroup:
        return share.heartbeat(groups.share, group, request, context)
    raise _other_kind(request.group_id, "share")


def _other_kind(group_id: str, kind: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind} group.")


# ---------------------------------------------------------------- the classic protocol


def join(groups: Groups, call: Join) -> Result[None]:
    """Apply a JoinGroup; an empty consumer or streams group becomes a classic group."""
    group = groups.find(call.request.group_id)
    if group is None or isinstance(group, ClassicGroup):
        return classic_join.join(groups.classic, call)
    if isinstance(group, ConsumerGroup) and not group.is_empty:
        return member_join.join(groups, group, call)
    if not group.has_offsets:
        return call.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, call.request.member_id)
    if not group.is_empty:
        return call.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    result = classic_join.join(groups.classic, call)
    result.records[:0] = groups.tombstones(group)
    return result


def sync(
    groups: Groups, request: SyncGroupRequest, answer: Pending[SyncGroupResponse]
) -> Result[None]:
    """Apply a SyncGroup."""
    group = groups.find(request.group_id)
    if isinstance(group, ConsumerGroup) and not group.is_empty:
        return member_join.sync(groups, group, request, answer)
    return membership.sync(groups.classic, request, answer)


def heartbeat(groups: Groups, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
    """Apply a Heartbeat of the classic protocol."""
    group = groups.find(request.group_id)
    if type(group) is ConsumerGroup:
        return member_join.heartbeat(groups, group, request)
    return membership.heartbeat(groups.classic, _classic(group, request.group_id), request)


def leave(groups: Groups, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
    """Apply a LeaveGroup."""
    group = groups.find(request.group_id)
    if type(group) is ConsumerGroup:
        return member_join.leave(groups, group, request)
    return membership.leave(groups.classic, _classic(group, request.group_id), request)


def _classic(group: AnyGroup | None, group_id: str) -> ClassicGroup:
    if type(group) is not ClassicGroup:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
    return group
