"""SaslHandshake and SaslAuthenticate on a listener without SASL.

Kafka: KafkaApis.handleSaslHandshakeRequest. On a SASL listener authentication precedes dispatch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.server.requests.api import handles
from ottla.server.requests.rights import EVERYONE

if TYPE_CHECKING:
    from ottla.server.requests.context import Context


@handles(SaslHandshakeRequest, right=EVERYONE)
def sasl_handshake(_ctx: Context, _request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Answer ILLEGAL_SASL_STATE: this listener does not authenticate."""
    return SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE), mechanisms=[])


@handles(SaslAuthenticateRequest, right=EVERYONE)
def sasl_authenticate(_ctx: Context, _request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Answer ILLEGAL_SASL_STATE: there was no handshake."""
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(
        error_code=int(ErrorCode.ILLEGAL_SASL_STATE), error_message=message, auth_bytes=b""
    )
