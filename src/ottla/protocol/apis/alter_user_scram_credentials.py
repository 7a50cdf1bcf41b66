"""Set and remove SCRAM credentials; passwords are salted by the client (KIP-554).

Kafka: AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse (key 51).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class AlterUserScramCredentialsRequest(
    Request, key=51, versions="0", flexible="0+", listeners=("broker", "controller")
):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]

    class ScramCredentialDeletion(Struct):
        name: str
        mechanism: int8

    class ScramCredentialUpsertion(Struct):
        name: str
        mechanism: int8
        iterations: int32
        salt: bytes = field(sensitive=True)
        salted_password: bytes = field(sensitive=True)


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    results: list[AlterUserScramCredentialsResult]

    class AlterUserScramCredentialsResult(Struct):
        user: str
        error_code: int16 = 0
        error_message: str | None
