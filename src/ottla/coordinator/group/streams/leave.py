"""Members that leave or are removed.

Kafka: GroupMetadataManager.{streamsGroupLeave, streamsGroupFenceMember}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.streams import records
from ottla.coordinator.runtime import CoordinatorRecord, Result
from ottla.protocol.apis.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from ottla.coordinator.group.streams.group import StreamsGroup
    from ottla.coordinator.group.streams.groups import StreamsGroups
    from ottla.coordinator.group.streams.member import StreamsMember


def leave(
    groups: StreamsGroups, request: StreamsGroupHeartbeatRequest
) -> Result[StreamsGroupHeartbeatResponse]:
    """Remove a member, which may request that the whole application ends."""
    group = groups.to_leave(request.group_id)
    if request.shutdown_application and group.shutdown_member_id is None:
        group.shutdown_member_id = request.member_id
    member = group.member(request.member_id)
    response = StreamsGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=0,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=[],
        endpoint_information_epoch=0,
    )
    return Result(response, remove_member(groups, group, member))


def remove_member(
    groups: StreamsGroups, group: StreamsGroup, member: StreamsMember
) -> list[CoordinatorRecord]:
    """Return the records that remove a member and raise the group epoch; end its timers."""
    group_id = group.group_id
    groups.cancel_timers(group_id, member.member_id)
    return [
        *records.member_tombstones(group_id, member.member_id),
        records.group_epoch(
            group_id,
            group.epoch + 1,
            group.metadata_hash,
            group.validated_epoch,
            group.assignment_configs,
        ),
    ]
