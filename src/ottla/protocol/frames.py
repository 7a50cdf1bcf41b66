"""Size-prefixed requests and responses.

The version of a response's header follows from that of the body: see `response_header_version` in
`protocol.api_keys`. Hot path: benchmarks/codec.py.

Kafka: org.apache.kafka.common.requests.{RequestHeader, ResponseHeader, AbstractRequest}.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.protocol import codec
from ottla.protocol.api_keys import request_header_version, response_header_version
from ottla.protocol.schema import Struct, int32

if TYPE_CHECKING:
    from ottla.protocol.schema import Request, Response
    from ottla.types import SendItem


class ResponseHeader(Struct, versions="0-1", flexible="1+"):
    """Response header; v1 has tagged fields."""

    correlation_id: int32


_SIZE = struct.Struct(">i")
REQUEST_HEADER = struct.Struct(">hhih")
"""Key, version, correlation id, client id length; the client id and tagged fields follow."""
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_SIZE_CORRELATION_NO_TAGS = struct.Struct(">iib")


def encode_request(
    request: Request, version: int, correlation_id: int, client_id: str | None
) -> list[SendItem]:
    """Return a complete request frame: size, header, body."""
    key = request.message_key
    text = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(text)
    try:
        header = REQUEST_HEADER.pack(key, version, correlation_id, length) + text
    except struct.error as error:
        raise ValueError(f"request header: {error}") from error
    if request_header_version(key, version) > 1:
        header += b"\0"
    out: list[SendItem] = [b"", header]
    codec.encode_into(request, version, out)
    out[0] = _SIZE.pack(codec.records_size(out))
    return out


def frame_size(frame: list[SendItem]) -> int:
    """Return the size of a frame of `encode_request`, with its size field."""
    size: int = _SIZE.unpack(frame[0])[0]  # type: ignore[arg-type] # it is bytes
    return _SIZE.size + size


def encode_response(
    correlation_id: int, key: int, version: int, response: Response
) -> list[SendItem]:
    """Return a complete response frame: size, header, body; one buffer without file slices."""
    out: list[SendItem] = []
    codec.encode_into(response, version, out)
    is_flexible = response_header_version(key, version)
    try:
        body = b"".join(out)  # type: ignore[arg-type] # a file slice makes it raise TypeError
    except TypeError:
        return [response_header(codec.records_size(out), correlation_id, is_flexible), *out]
    return [response_header(len(body), correlation_id, is_flexible) + body]


def response_header(body_size: int, correlation_id: int, is_flexible: int) -> bytes:
    """Return the size and header of a response whose body has so many bytes."""
    if is_flexible:
        return _SIZE_CORRELATION_NO_TAGS.pack(body_size + 5, correlation_id, 0)
    return _SIZE_AND_CORRELATION.pack(body_size + 4, correlation_id)
