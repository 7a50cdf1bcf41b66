"""Builders of JoinGroup and SyncGroup responses.

Kafka: the builders of JoinGroupResponseData and SyncGroupResponseData.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.apis.join_group import JoinGroupResponse
from ottla.protocol.apis.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.group import ClassicGroup


def join_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """Return the response to a failed join."""
    return JoinGroupResponse(
        error_code=code, protocol_name=None, leader="", member_id=member_id, members=[]
    )


def join_success(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """Return the response to a join of the group's generation, without its members."""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=[],
    )


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    """Return the response to a failed sync."""
    return SyncGroupResponse(error_code=code, assignment=b"")


def sync_success(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    """Return the response to a sync of the group's generation."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=assignment,
    )
