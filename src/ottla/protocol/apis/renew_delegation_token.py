"""Extend the lifetime of a delegation token (KIP-48).

Kafka: RenewDelegationTokenRequest, RenewDelegationTokenResponse (key 39).

v2 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, field, int16, int32, int64


class RenewDelegationTokenRequest(
    Request, key=39, versions="1-2", flexible="2+", listeners=("broker", "controller")
):
    hmac: bytes = field(sensitive=True)
    renew_period_ms: int64


class RenewDelegationTokenResponse(Response, key=39, versions="1-2", flexible="2+"):
    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0
