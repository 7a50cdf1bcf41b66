"""ApiVersions, and the SASL requests on a listener without SASL.

Kafka: KafkaApis.handleApiVersionsRequest, ApiVersionManager (KIP-511, KIP-584);
KafkaApis.handleSaslHandshakeRequest. On a SASL listener authentication precedes dispatch.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from ottla.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.server.requests.api import handles, served_apis
from ottla.server.requests.rights import EVERYONE

if TYPE_CHECKING:
    from ottla.server.requests.context import Context

ApiVersion = ApiVersionsResponse.ApiVersion
_PRODUCE = 0
_TELEMETRY = (71, 72)
"""Served, but advertised only if a metrics receiver is configured."""
_MAX_SOFTWARE_LENGTH = 128
"""Characters kept of a client's name and version, which may be 32 KB and precede a login."""
_LEGAL_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(
    ApiVersionsRequest,
    right=EVERYONE,
    notes={
        3: "the client's software is noted (KIP-511); features (KIP-584)",
        4: "features of level 0, which older clients take for an error",
    },
)
def api_versions(ctx: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """List the served versions; features from version 3 on."""
    if ctx.api_version >= 3 and not _is_legal(request):
        return ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST), api_keys=[])
    if ctx.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        ctx.connection.attachment = tuple(name[:_MAX_SOFTWARE_LENGTH] for name in names)
    hidden = () if ctx.broker.telemetry.has_receiver else _TELEMETRY
    response = ApiVersionsResponse(
        api_keys=[one for one in _served_to(ctx) if one.api_key not in hidden]
    )
    features = ctx.broker.image.features
    response.supported_features = [
        ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
        if low or ctx.api_version >= 4
    ]
    response.finalized_features_epoch = ctx.broker.image.offset_and_epoch.offset
    response.finalized_features = [
        ApiVersionsResponse.FinalizedFeatureKey(
            name=name, max_version_level=level, min_version_level=level
        )
        for name, level in sorted({**features.levels, **_kraft_level(ctx)}.items())
    ]
    return response


def _kraft_level(ctx: Context) -> dict[str, int]:
    """Return the level stored in the quorum's own records; 0 is not a finalised level."""
    level = ctx.broker.quorum.kraft_version
    return {KRAFT_VERSION: level} if level else {}


def _is_legal(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_LEGAL_SOFTWARE.fullmatch(name) for name in names)


def _served_to(ctx: Context) -> tuple[ApiVersion, ...]:
    unstable = ctx.broker.metadata.config.unstable_api_versions_enable
    return _served(ctx.listener, unstable=unstable)


@cache
def _served(listener: str, *, unstable: bool) -> tuple[ApiVersion, ...]:
    """List by key. Produce is listed from 0 although 3 is the lowest: old librdkafka needs it."""
    return tuple(
        ApiVersion(
            api_key=key,
            min_version=0 if key == _PRODUCE else api.lowest,
            max_version=api.highest,
        )
        for key, api in sorted(served_apis(listener, unstable=unstable).items())
    )


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
