"""Distribute the assignment of a classic group: the leader sends it, each member gets its part.

Kafka: SyncGroupRequest, SyncGroupResponse (key 14).

v3 static members (KIP-345); v4 flexible; v5 protocol type and name, checked (KIP-559).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+", listeners=("broker",)):
    group_id: str
    generation_id: int32
    member_id: str
    group_instance_id: str | None = field("3+", default=None)
    protocol_type: str | None = field("5+", default=None, ignorable=True)
    protocol_name: str | None = field("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]

    class SyncGroupRequestAssignment(Struct):
        member_id: str
        assignment: bytes


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int32 = field("1+", default=0, ignorable=True)
    error_code: int16 = 0
    protocol_type: str | None = field("5+", default=None, ignorable=True)
    protocol_name: str | None = field("5+", default=None, ignorable=True)
    assignment: bytes
