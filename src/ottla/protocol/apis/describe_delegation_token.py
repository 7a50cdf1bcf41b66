"""List delegation tokens by owner (KIP-48).

Kafka: DescribeDelegationTokenRequest, DescribeDelegationTokenResponse (key 41).

v2 flexible; v3 requester of the token (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class DescribeDelegationTokenRequest(
    Request, key=41, versions="1-3", flexible="2+", listeners=("broker", "controller")
):
    owners: list[DescribeDelegationTokenOwner] | None

    class DescribeDelegationTokenOwner(Struct):
        principal_type: str
        principal_name: str


class DescribeDelegationTokenResponse(Response, key=41, versions="1-3", flexible="2+"):
    error_code: int16 = 0
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: int32 = 0

    class DescribedDelegationToken(Struct):
        principal_type: str
        principal_name: str
        token_requester_principal_type: str = field("3+", default="")
        token_requester_principal_name: str = field("3+", default="")
        issue_timestamp: int64
        expiry_timestamp: int64
        max_timestamp: int64
        token_id: str
        hmac: bytes = field(sensitive=True)
        renewers: list[DescribedDelegationTokenRenewer]

        class DescribedDelegationTokenRenewer(Struct):
            principal_type: str
            principal_name: str
