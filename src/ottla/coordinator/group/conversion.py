"""Groups that are empty change their kind with the first member of another protocol.

Kafka: GroupMetadataManager.{getOrMaybeCreateConsumerGroup, maybeDeleteEmptyClassicGroup,
classicGroupJoin}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group import records
from ottla.coordinator.group.classic import join as classic_join
from ottla.coordinator.group.consumer import heartbeat as consumer_heartbeat
from ottla.coordinator.group.consumer import records as consumer_records
from ottla.coordinator.group.consumer.member import JOIN_EPOCH
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.join_call import Join
    from ottla.coordinator.group.context import RequestContext
    from ottla.coordinator.group.groups import Groups
    from ottla.coordinator.runtime import Result
    from ottla.protocol.apis.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )


def heartbeat(
    groups: Groups, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Result[ConsumerGroupHeartbeatResponse]:
    """Apply a heartbeat; an empty classic group becomes a consumer group where a member joins."""
    group_id = request.group_id
    classic = None if groups.consumer.find(group_id) else groups.classic.find(group_id)
    if classic is None:
        return consumer_heartbeat.heartbeat(groups.consumer, request, context)
    if request.member_epoch != JOIN_EPOCH or not classic.is_empty or classic.pending_join:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    result = consumer_heartbeat.heartbeat(groups.consumer, request, context)
    if group_id in groups.classic.stored:
        result.records.insert(0, records.group_tombstone(group_id))
    return result


def join(groups: Groups, call: Join) -> Result[None]:
    """Apply a JoinGroup; an empty consumer group becomes a classic group."""
    group = groups.consumer.find(call.request.group_id)
    if group is None:
        return classic_join.join(groups.classic, call)
    if not group.is_empty:
        return call.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, call.request.member_id)
    result = classic_join.join(groups.classic, call)
    result.records[:0] = consumer_records.group_tombstones(group)
    return result
