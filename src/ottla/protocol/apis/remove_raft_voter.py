"""Remove a controller from the voters (KIP-853).

Kafka: RemoveRaftVoterRequest, RemoveRaftVoterResponse (key 81).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, field, int16, int32
from ottla.types import Uuid


class RemoveRaftVoterRequest(
    Request, key=81, versions="0", flexible="0+", listeners=("controller", "broker")
):
    cluster_id: str | None
    voter_id: int32
    voter_directory_id: Uuid


class RemoveRaftVoterResponse(Response, key=81, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = field(ignorable=True)
