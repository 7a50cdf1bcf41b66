"""Error responses of JoinGroup and SyncGroup.

Kafka: the builders of JoinGroupResponseData and SyncGroupResponseData.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.apis.join_group import JoinGroupResponse
from ottla.protocol.apis.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from ottla.errors import ErrorCode


def join_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """Return the response to a failed join."""
    return JoinGroupResponse(
        error_code=code, protocol_name=None, leader="", member_id=member_id, members=[]
    )


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    """Return the response to a failed sync."""
    return SyncGroupResponse(error_code=code, assignment=b"")
