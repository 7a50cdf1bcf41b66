"""Requests of either protocol for groups of either kind; a group changes its kind where it must.

Kafka: GroupMetadataManager.{getOrMaybeCreateConsumerGroup, getOrCreateStreamsGroup,
maybeDeleteEmptyClassicGroup, classicGroupJoin, classicGroupSync, classicGroupHeartbeat,
classicGroupLeave}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group import records
from ottla.coordinator.group.classic import join as classic_join
from ottla.coordinator.group.classic import membership
from ottla.coordinator.group.classic import sync as classic_sync
from ottla.coordinator.group.consumer import heartbeat as consumer_heartbeat
from ottla.coordinator.group.consumer import records as consumer_records
from ottla.coordinator.group.consumer.member import JOIN_EPOCH
from ottla.coordinator.group.migration import join as member_join
from ottla.coordinator.group.migration import session
from ottla.coordinator.group.migration.upgrade import upgrade
from ottla.coordinator.group.streams import heartbeat as streams_heartbeat
from ottla.coordinator.group.streams import records as streams_records
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.group import ClassicGroup
    from ottla.coordinator.group.classic.join_call import Join
    from ottla.coordinator.group.context import RequestContext
    from ottla.coordinator.group.groups import Groups
    from ottla.coordinator.runtime import Result
    from ottla.protocol.apis.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from ottla.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
    from ottla.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from ottla.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest
    from ottla.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
    from ottla.purgatory.pending import Pending


def consumer_heartbeat_of(
    groups: Groups, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Result[ConsumerGroupHeartbeatResponse]:
    """Apply a ConsumerGroupHeartbeat; a classic group becomes a consumer group where it joins."""
    group_id = request.group_id
    if groups.consumer.find(group_id) is not None:
        return consumer_heartbeat.heartbeat(groups.consumer, request, context)
    if groups.streams.find(group_id) is not None or groups.share.find(group_id) is not None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    classic = groups.classic.find(group_id)
    if classic is None:
        return consumer_heartbeat.heartbeat(groups.consumer, request, context)
    if request.member_epoch != JOIN_EPOCH:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if classic.is_empty:
        result = consumer_heartbeat.heartbeat(groups.consumer, request, context)
        result.records.insert(0, records.group_tombstone(group_id))
        return result
    return _upgraded(groups, classic, request, context)


def _upgraded(
    groups: Groups,
    classic: ClassicGroup,
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
) -> Result[ConsumerGroupHeartbeatResponse]:
    group, written = upgrade(groups, classic)
    result = consumer_heartbeat.heartbeat(groups.consumer, request, context, group)
    result.records[:0] = written
    result.on_commit = lambda _offset: groups.classic.discard(classic)
    return result


def streams_heartbeat_of(
    groups: Groups, request: StreamsGroupHeartbeatRequest, context: RequestContext
) -> Result[streams_heartbeat.HeartbeatResult]:
    """Apply a StreamsGroupHeartbeat; an empty classic group becomes a streams group."""
    group_id = request.group_id
    classic = groups.classic.find(group_id)
    is_replaced = request.member_epoch == JOIN_EPOCH and classic is not None and classic.is_empty
    is_other = classic is not None and not is_replaced
    is_other |= groups.share.find(group_id) is not None
    if is_other or groups.consumer.find(group_id) is not None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
    result = streams_heartbeat.heartbeat(groups.streams, request, context)
    if is_replaced:
        result.records.insert(0, records.group_tombstone(group_id))
    return result


def join(groups: Groups, call: Join) -> Result[None]:
    """Apply a JoinGroup; an empty consumer or streams group becomes a classic group."""
    if groups.share.find(call.request.group_id) is not None:
        return call.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, call.request.member_id)
    streams = groups.streams.find(call.request.group_id)
    if streams is not None:
        if not streams.is_empty:
            return call.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        result = classic_join.join(groups.classic, call)
        result.records[:0] = streams_records.group_tombstones(streams)
        return result
    group = groups.consumer.find(call.request.group_id)
    if group is None:
        return classic_join.join(groups.classic, call)
    if not group.is_empty:
        return member_join.join(groups, group, call)
    result = classic_join.join(groups.classic, call)
    result.records[:0] = consumer_records.group_tombstones(group)
    return result


def sync(
    groups: Groups, request: SyncGroupRequest, answer: Pending[SyncGroupResponse]
) -> Result[None]:
    """Apply a SyncGroup."""
    group = groups.consumer.find(request.group_id)
    if group is None or group.is_empty:
        return classic_sync.sync(groups.classic, request, answer)
    return session.sync(groups, group, request, answer)


def heartbeat(groups: Groups, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
    """Apply a Heartbeat of the classic protocol."""
    group = groups.consumer.find(request.group_id)
    if group is None:
        return membership.heartbeat(groups.classic, request)
    return session.heartbeat(groups, group, request)


def leave(groups: Groups, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
    """Apply a LeaveGroup."""
    group = groups.consumer.find(request.group_id)
    if group is None:
        return membership.leave(groups.classic, request)
    return session.leave(groups, group, request)
