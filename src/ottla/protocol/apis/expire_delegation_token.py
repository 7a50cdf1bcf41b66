"""Bring forward the expiry of a delegation token; negative means now (KIP-48).

Kafka: ExpireDelegationTokenRequest, ExpireDelegationTokenResponse (key 40).

v2 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, field, int16, int32, int64


class ExpireDelegationTokenRequest(
    Request, key=40, versions="1-2", flexible="2+", listeners=("broker", "controller")
):
    hmac: bytes = field(sensitive=True)
    expiry_time_period_ms: int64


class ExpireDelegationTokenResponse(Response, key=40, versions="1-2", flexible="2+"):
    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0
