"""One step of a SASL exchange (KIP-152).

Kafka: SaslAuthenticateRequest, SaslAuthenticateResponse (key 36).

v1 lifetime of the session, after which to authenticate again (KIP-368); v2 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, field, int16, int64


class SaslAuthenticateRequest(
    Request, key=36, versions="0-2", flexible="2+", listeners=("broker", "controller")
):
    auth_bytes: bytes = field(sensitive=True)


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    error_code: int16 = 0
    error_message: str | None
    auth_bytes: bytes = field(sensitive=True)
    session_lifetime_ms: int64 = field("1+", default=0, ignorable=True)  # KIP-368
