"""Join a classic group; the response is sent when the join phase is complete.

Kafka: JoinGroupRequest, JoinGroupResponse (key 11).

v1 separate rebalance timeout; v4 a new member receives its id first and must rejoin with it
(KIP-394); v5 static members (KIP-345); v6 flexible; v7 protocol type in the response (KIP-559);
v8 reason (KIP-800); v9 the leader may have to skip the assignment (KIP-814).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+", listeners=("broker",)):
    group_id: str
    session_timeout_ms: int32
    rebalance_timeout_ms: int32 = field("1+", default=-1, ignorable=True)
    member_id: str
    group_instance_id: str | None = field("5+", default=None)  # KIP-345
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: str | None = field("8+", default=None, ignorable=True)  # KIP-800

    class JoinGroupRequestProtocol(Struct):
        name: str
        metadata: bytes


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int32 = field("2+", default=0, ignorable=True)
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_type: str | None = field("7+", default=None, ignorable=True)
    protocol_name: str | None = field(nullable="7+")
    leader: str
    skip_assignment: bool = field("9+", default=False)  # KIP-814
    member_id: str
    members: list[JoinGroupResponseMember]

    class JoinGroupResponseMember(Struct):
        member_id: str
        group_instance_id: str | None = field("5+", default=None, ignorable=True)
        metadata: bytes
