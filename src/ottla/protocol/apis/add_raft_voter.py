"""Add a controller to the voters (KIP-853).

Kafka: AddRaftVoterRequest, AddRaftVoterResponse (key 80).

v1 may be answered before the change has committed (KIP-1186).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32, uint16
from ottla.types import Uuid


class AddRaftVoterRequest(
    Request, key=80, versions="0-1", flexible="0+", listeners=("controller", "broker")
):
    cluster_id: str | None
    timeout_ms: int32
    voter_id: int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    ack_when_committed: bool = field("1+", default=True)  # KIP-1186

    class Listener(Struct):
        name: str
        host: str
        port: uint16


class AddRaftVoterResponse(Response, key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = field(ignorable=True)
