"""The header of responses; that of requests is in `protocol/request_header.py`.

Kafka: ResponseHeader. Its version follows from that of the body: see `response_header_version` in
`protocol.api_keys`.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct, int32


class ResponseHeader(Struct, versions="0-1", flexible="1+"):
    """Response header; v1 has tagged fields."""

    correlation_id: int32
