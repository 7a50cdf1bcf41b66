"""Request and response headers."""

from __future__ import annotations

from ottla.protocol.schema import Struct, field, int16, int32


class RequestHeader(Struct, versions="1-2", flexible="2+"):
    """DOC RequestHeader."""

    request_api_key: int16
    request_api_version: int16
    correlation_id: int32
    client_id: str | None = field("1+", flexible="none")


class ResponseHeader(Struct, versions="0-1", flexible="1+"):
    """DOC ResponseHeader."""

    correlation_id: int32
