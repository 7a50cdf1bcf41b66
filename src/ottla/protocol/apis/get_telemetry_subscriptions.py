"""The metrics that a client should push to the broker (KIP-714).

Kafka: GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse (key 71).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, int8, int16, int32
from ottla.types import Uuid


class GetTelemetrySubscriptionsRequest(
    Request, key=71, versions="0", flexible="0+", listeners=("broker",)
):
    client_instance_id: Uuid


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    client_instance_id: Uuid
    subscription_id: int32
    accepted_compression_types: list[int8]
    push_interval_ms: int32
    telemetry_max_bytes: int32
    delta_temporality: bool
    requested_metrics: list[str]
