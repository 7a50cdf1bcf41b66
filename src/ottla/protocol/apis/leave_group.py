"""Leave a classic group, or remove several members of it.

Kafka: LeaveGroupRequest, LeaveGroupResponse (key 13).

v3 many members, by member or instance id (KIP-345); v4 flexible; v5 reason (KIP-800).
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int16, int32


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+", listeners=("broker",)):
    group_id: str
    member_id: str = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default=EMPTY)

    class MemberIdentity(Struct):
        member_id: str
        group_instance_id: str | None = None
        reason: str | None = field("5+", default=None, ignorable=True)  # KIP-800


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int32 = field("1+", default=0, ignorable=True)
    error_code: int16 = 0
    members: list[MemberResponse] = field("3+", default=EMPTY)

    class MemberResponse(Struct):
        member_id: str
        group_instance_id: str | None
        error_code: int16 = 0
