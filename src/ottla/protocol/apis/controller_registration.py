"""A controller registers with the active controller (KIP-919).

Kafka: ControllerRegistrationRequest, ControllerRegistrationResponse (key 70).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32, uint16
from ottla.types import Uuid


class ControllerRegistrationRequest(
    Request, key=70, versions="0", flexible="0+", listeners=("controller",)
):
    controller_id: int32
    incarnation_id: Uuid
    zk_migration_ready: bool
    listeners: list[Listener]
    features: list[Feature]

    class Listener(Struct):
        name: str
        host: str
        port: uint16
        security_protocol: int16

    class Feature(Struct):
        name: str
        min_supported_version: int16
        max_supported_version: int16


class ControllerRegistrationResponse(Response, key=70, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None
