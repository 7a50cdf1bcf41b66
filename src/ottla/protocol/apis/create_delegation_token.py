"""Issue a delegation token (KIP-48).

Kafka: CreateDelegationTokenRequest, CreateDelegationTokenResponse (key 38).

v2 flexible; v3 on behalf of another owner (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class CreateDelegationTokenRequest(
    Request, key=38, versions="1-3", flexible="2+", listeners=("broker", "controller")
):
    owner_principal_type: str | None = field("3+", default="")
    owner_principal_name: str | None = field("3+", default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: int64

    class CreatableRenewers(Struct):
        principal_type: str
        principal_name: str


class CreateDelegationTokenResponse(Response, key=38, versions="1-3", flexible="2+"):
    error_code: int16 = 0
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = field("3+", default="")
    token_requester_principal_name: str = field("3+", default="")
    issue_timestamp_ms: int64 = 0
    expiry_timestamp_ms: int64 = 0
    max_timestamp_ms: int64 = 0
    token_id: str = ""
    hmac: bytes = field(default=b"", sensitive=True)
    throttle_time_ms: int32 = 0
