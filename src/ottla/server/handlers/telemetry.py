"""GetTelemetrySubscriptions and PushTelemetry: metrics of clients (KIP-714).

Kafka: KafkaApis.handleGetTelemetrySubscriptionsRequest, handlePushTelemetryRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.apis.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.server.broker.telemetry import ACCEPTED, TelemetryContext
from ottla.server.requests.api import handles
from ottla.server.requests.rights import EVERYONE
from ottla.types import METADATA_TOPIC_ID, ZERO_UUID, Uuid

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context

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
        accepted_compression_types=[int(one) for one in ACCEPTED],
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
