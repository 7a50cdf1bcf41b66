"""A voter updates its endpoints and supported versions (KIP-853).

Kafka: UpdateRaftVoterRequest, UpdateRaftVoterResponse (key 82).
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int16, int32, uint16
from ottla.types import Uuid


class UpdateRaftVoterRequest(
    Request, key=82, versions="0", flexible="0+", listeners=("controller",)
):
    cluster_id: str | None
    current_leader_epoch: int32
    voter_id: int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    kraft_version_feature: KRaftVersionFeature

    class Listener(Struct):
        name: str
        host: str
        port: uint16

    class KRaftVersionFeature(Struct):
        min_supported_version: int16
        max_supported_version: int16


class UpdateRaftVoterResponse(Response, key=82, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    current_leader: CurrentLeader = field(default=EMPTY, tag=0)

    class CurrentLeader(Struct):
        leader_id: int32 = -1
        leader_epoch: int32 = -1
        host: str
        port: int32
