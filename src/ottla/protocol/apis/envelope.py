"""A broker forwards a client request to the controller, with the principal (KIP-590).

Kafka: EnvelopeRequest, EnvelopeResponse (key 58).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, int16


class EnvelopeRequest(Request, key=58, versions="0", flexible="0+", listeners=("controller",)):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


class EnvelopeResponse(Response, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = None
    error_code: int16 = 0
