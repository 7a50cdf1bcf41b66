"""What stands before the body of every request and response.

Kafka: RequestHeader, ResponseHeader. Which version goes with which body is a matter of the body's
own version: see `request_header_version` and `response_header_version` in `protocol.api_keys`.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct, field, int16, int32


class RequestHeader(Struct, versions="1-2", flexible="2+"):
    """Before a request; v2 with tagged fields.

    The client id keeps its old encoding, so that a broker of any age can read the header of an
    ApiVersions request and answer that it does not know the version.
    """

    request_api_key: int16
    request_api_version: int16
    correlation_id: int32
    client_id: str | None = field(flexible="none")


class ResponseHeader(Struct, versions="0-1", flexible="1+"):
    """Before a response; v1 with tagged fields."""

    correlation_id: int32
