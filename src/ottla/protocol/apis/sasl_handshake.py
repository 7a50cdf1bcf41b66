"""Choose a SASL mechanism.

Kafka: SaslHandshakeRequest, SaslHandshakeResponse (key 17).

v1: the exchange follows in SaslAuthenticate requests instead of bare frames (KIP-152). Never
flexible: old clients negotiate it wrongly.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, int16


class SaslHandshakeRequest(
    Request, key=17, versions="0-1", flexible="none", listeners=("broker", "controller")
):
    mechanism: str


class SaslHandshakeResponse(Response, key=17, versions="0-1", flexible="none"):
    error_code: int16 = 0
    mechanisms: list[str]
