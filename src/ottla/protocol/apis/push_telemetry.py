"""A client pushes its metrics (KIP-714).

Kafka: PushTelemetryRequest, PushTelemetryResponse (key 72).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, int8, int16, int32
from ottla.types import Uuid


class PushTelemetryRequest(Request, key=72, versions="0", flexible="0+", listeners=("broker",)):
    client_instance_id: Uuid
    subscription_id: int32
    terminating: bool
    compression_type: int8
    metrics: bytes


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
