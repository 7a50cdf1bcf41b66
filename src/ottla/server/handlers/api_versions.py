"""What any client calls first: ApiVersions, SASL on a listener without it, telemetry.

Kafka: KafkaApis.handleApiVersionsRequest, ApiVersionManager (KIP-511, KIP-584);
KafkaApis.handleSaslHandshakeRequest. On a SASL listener authentication precedes dispatch;
KafkaApis.handleGetTelemetrySubscriptionsRequest, handlePushTelemetryRequest.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from ottla.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.apis.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.apis.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.server.broker.telemetry import ACCEPTED, TelemetryContext
from ottla.server.requests.api import handles, served_apis
from ottla.server.requests.rights import EVERYONE
from ottla.types import METADATA_TOPIC_ID, ZERO_UUID, Uuid

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
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
        api_keys=[api for api in _served_to(ctx) if api.api_key not in hidden]
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


_RESERVED = (ZERO_UUID, METADATA_TOPIC_ID)
_MAX_CLIENT_ID_LENGTH: Final = 1024
"""Characters of a client id that are kept with its instance, and matched by subscriptions."""


@handles(GetTelemetrySubscriptionsRequest, right=EVERYONE)
def get_telemetry_subscriptions(
    ctx: Context, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Return the requested metrics and the push interval; assign an instance id if needed."""
    telemetry = ctx.broker.telemetry
    instance_id = request.client_instance_id or _new_id(ctx)
    instance = telemetry.instance(instance_id, _context(ctx), ctx.connection.connection_id)
    if not instance.may_get(ctx.broker.clock.monotonic_ms()):
        code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return GetTelemetrySubscriptionsResponse(
            error_code=int(code),
            client_instance_id=ZERO_UUID,
            subscription_id=0,
            accepted_compression_types=[],
            push_interval_ms=0,
            telemetry_max_bytes=0,
            delta_temporality=False,
            requested_metrics=[],
        )
    instance.last_error = ErrorCode.NONE
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(codec) for codec in ACCEPTED],
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=instance.metrics,
    )


@handles(PushTelemetryRequest, right=EVERYONE)
def push_telemetry(
    ctx: Context, request: PushTelemetryRequest
) -> PushTelemetryResponse | Pending[PushTelemetryResponse]:
    """Export a client's metrics to the receiver."""
    telemetry = ctx.broker.telemetry
    if request.client_instance_id in _RESERVED:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    instance = telemetry.instance(
        request.client_instance_id, _context(ctx), ctx.connection.connection_id
    )
    try:
        telemetry.check_push(request, instance, ctx.broker.clock.monotonic_ms())
    except KafkaError as error:
        instance.last_error = error.code
        raise
    finally:
        instance.is_terminating = request.terminating
    instance.last_error = ErrorCode.NONE
    if not request.metrics:
        return PushTelemetryResponse()
    return telemetry.export(request, instance)


def _new_id(ctx: Context) -> Uuid:
    """Return a random id that is not reserved."""
    while True:
        drawn = Uuid(ctx.broker.rng.randbytes(16))
        if drawn not in _RESERVED:
            return drawn


def _context(ctx: Context) -> TelemetryContext:
    connection = ctx.connection
    software = connection.attachment
    name, version = software if isinstance(software, tuple) else ("unknown", "unknown")
    return TelemetryContext(
        client_id=ctx.client_id[:_MAX_CLIENT_ID_LENGTH],
        client_address=connection.peer_host,
        client_port=connection.peer_port,
        client_software_name=name,
        client_software_version=version,
        listener_name=ctx.listener_name,
    )
