"""Which users have SCRAM credentials, never the credentials (KIP-554).

Kafka: DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse (key 50).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int8, int16, int32


class DescribeUserScramCredentialsRequest(
    Request, key=50, versions="0", flexible="0+", listeners=("broker", "controller")
):
    users: list[UserName] | None

    class UserName(Struct):
        name: str


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None
    results: list[DescribeUserScramCredentialsResult]

    class DescribeUserScramCredentialsResult(Struct):
        user: str
        error_code: int16 = 0
        error_message: str | None
        credential_infos: list[CredentialInfo]

        class CredentialInfo(Struct):
            mechanism: int8
            iterations: int32
