"""Keep a member of a classic group alive; the response reports rebalances.

Kafka: HeartbeatRequest, HeartbeatResponse (key 12).

v3 static members (KIP-345); v4 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, field, int16, int32


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+", listeners=("broker",)):
    group_id: str
    generation_id: int32
    member_id: str
    group_instance_id: str | None = field("3+", default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int32 = field("1+", default=0, ignorable=True)
    error_code: int16 = 0
