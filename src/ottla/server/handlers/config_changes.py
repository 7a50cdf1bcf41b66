"""IncrementalAlterConfigs and AlterConfigs: loggers change here, others on the controller.

Kafka: kafka.server.ConfigAdminManager, KafkaApis.handleIncrementalAlterConfigsRequest.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ConfigResourceType
from ottla.protocol.apis.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.server.handlers.refusals import per_item_errors
from ottla.server.logging.loggers import DELETE, change_levels
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context

    Resource = IncrementalAlterConfigsRequest.AlterConfigsResource

Outcome = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
Replaced = AlterConfigsResponse.AlterConfigsResourceResponse


@handles(AlterConfigsRequest)
def alter_configs(ctx: Context, request: AlterConfigsRequest) -> Pending[AlterConfigsResponse]:
    """Replace all settings of a resource (the old API)."""
    return per_item_errors(
        ctx.controller.send(request, ctx.requester()),
        lambda error: AlterConfigsResponse(
            responses=[Replaced(**error, **_named(one)) for one in request.resources]
        ),
    )


@handles(IncrementalAlterConfigsRequest)
def incremental_alter_configs(
    ctx: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Pending[IncrementalAlterConfigsResponse]:
    """Set, delete, append to, subtract from settings (KIP-339), also of loggers (KIP-412)."""
    if all(one.resource_type != ConfigResourceType.BROKER_LOGGER for one in request.resources):
        return _forward(ctx, request)
    times = Counter((one.resource_type, one.resource_name) for one in request.resources)
    loggers = [
        _change_loggers(
            ctx,
            one,
            only_check=request.validate_only,
            is_repeated=times[one.resource_type, one.resource_name] > 1,
        )
        for one in request.resources
        if one.resource_type == ConfigResourceType.BROKER_LOGGER
    ]
    others = [
        one for one in request.resources if one.resource_type != ConfigResourceType.BROKER_LOGGER
    ]
    if not others:
        return IncrementalAlterConfigsResponse(responses=loggers)
    forwarded = IncrementalAlterConfigsRequest(
        resources=others, validate_only=request.validate_only
    )
    return _forward(ctx, forwarded).then(
        lambda answer: IncrementalAlterConfigsResponse(responses=[*loggers, *answer.responses])
    )


def _forward(
    ctx: Context, request: IncrementalAlterConfigsRequest
) -> Pending[IncrementalAlterConfigsResponse]:
    return per_item_errors(
        ctx.controller.send(request, ctx.requester()),
        lambda error: IncrementalAlterConfigsResponse(
            responses=[Outcome(**error, **_named(one)) for one in request.resources]
        ),
    )


def _named(resource: Resource | AlterConfigsRequest.AlterConfigsResource) -> dict[str, Any]:
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name}


def _change_loggers(
    ctx: Context, resource: Resource, *, only_check: bool, is_repeated: bool
) -> Outcome:
    outcome = Outcome(
        error_code=0,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        _check_settings(resource)
        _check_node(ctx, resource.resource_name)
        changes = [(one.name, one.config_operation, one.value) for one in resource.configs]
        change_levels(changes, only_check=only_check)
    except KafkaError as error:
        outcome.error_code = int(error.code)
        outcome.error_message = error.message or None
    return outcome


def _check_settings(resource: Resource) -> None:
    names = [one.name for one in resource.configs]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    empty = [
        one.name for one in resource.configs if one.value is None and one.config_operation != DELETE
    ]
    if empty:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}"
        )


def _check_node(ctx: Context, name: str) -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
        ) from None
    if node_id != ctx.broker.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected node id. Expected {ctx.broker.node_id}, but received {node_id}",
        )
