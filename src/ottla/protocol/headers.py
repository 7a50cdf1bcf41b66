"""Headers of requests and responses.

Kafka: RequestHeader, ResponseHeader. The version of the header follows from that of the body: see
`request_header_version` and `response_header_version` in `protocol.api_keys`.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct, field, int16, int32


class RequestHeader(Struct, versions="1-2", flexible="2+"):
    """Request header; v2 has tagged fields.

    The client id keeps its old encoding, so that every broker can read the header of an
    ApiVersions request of an unknown version and answer UNSUPPORTED_VERSION.
    """

    request_api_key: int16
    request_api_version: int16
    correlation_id: int32
    client_id: str | None = field(flexible="none")


class ResponseHeader(Struct, versions="0-1", flexible="1+"):
    """Response header; v1 has tagged fields."""

    correlation_id: int32
