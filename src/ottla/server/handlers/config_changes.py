"""IncrementalAlterConfigs and AlterConfigs: loggers change here, others on the controller.

Kafka: kafka.server.ConfigAdminManager, KafkaApis.handleIncrementalAlterConfigsRequest.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ottla.controller.result import specific_message
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ConfigResourceType
from ottla.protocol.apis.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.handlers.own_settings import check_this_node, when_checked
from ottla.server.handlers.refusals import per_item_errors
from ottla.server.logging.loggers import DELETE, change_levels
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context

    Resource = IncrementalAlterConfigsRequest.AlterConfigsResource

T = TypeVar("T")
Outcome = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
Replaced = AlterConfigsResponse.AlterConfigsResourceResponse


@handles(AlterConfigsRequest)
def alter_configs(
    ctx: Context, request: AlterConfigsRequest
) -> AlterConfigsResponse | Pending[AlterConfigsResponse]:
    """Replace all settings of a resource (the old API)."""
    return when_checked(ctx, request.resources, partial(_replace, ctx, request))


def _replace(
    ctx: Context, request: AlterConfigsRequest, refused: Mapping[int, KafkaError]
) -> AlterConfigsResponse | Pending[AlterConfigsResponse]:
    own = {
        place: Replaced(**_error(error), **_named(request.resources[place]))
        for place, error in refused.items()
    }
    if not own:
        return _forward_replaced(ctx, request)
    others = [one for place, one in enumerate(request.resources) if place not in own]
    if not others:
        return AlterConfigsResponse(responses=list(own.values()))
    forwarded = AlterConfigsRequest(resources=others, validate_only=request.validate_only)
    return _forward_replaced(ctx, forwarded).then(
        lambda got: AlterConfigsResponse(responses=_merged(request.resources, own, got.responses))
    )


@handles(IncrementalAlterConfigsRequest)
def incremental_alter_configs(
    ctx: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Pending[IncrementalAlterConfigsResponse]:
    """Set, delete, append to or subtract from settings (KIP-339), also of loggers (KIP-412)."""
    return when_checked(ctx, request.resources, partial(_change, ctx, request))


def _change(
    ctx: Context, request: IncrementalAlterConfigsRequest, refused: Mapping[int, KafkaError]
) -> IncrementalAlterConfigsResponse | Pending[IncrementalAlterConfigsResponse]:
    own = {
        place: Outcome(**_error(error), **_named(request.resources[place]))
        for place, error in refused.items()
    } | _loggers(ctx, request)
    if not own:
        return _forward(ctx, request)
    others = [one for place, one in enumerate(request.resources) if place not in own]
    if not others:
        return IncrementalAlterConfigsResponse(responses=[own[place] for place in sorted(own)])
    forwarded = IncrementalAlterConfigsRequest(
        resources=others, validate_only=request.validate_only
    )

    def merged(got: IncrementalAlterConfigsResponse) -> IncrementalAlterConfigsResponse:
        responses = _merged(request.resources, own, got.responses)
        return IncrementalAlterConfigsResponse(responses=responses)

    if ctx.listener == "controller":  # as in Kafka, a standby's refusal covers its loggers
        return _or_failed(request, ctx.controller.send(forwarded, ctx.requester()).then(merged))
    return _forward(ctx, forwarded).then(merged)


def _loggers(ctx: Context, request: IncrementalAlterConfigsRequest) -> dict[int, Outcome]:
    """Change the levels of this node's loggers; return the outcomes by place."""
    times = Counter((one.resource_type, one.resource_name) for one in request.resources)
    return {
        place: _change_loggers(
            ctx,
            one,
            only_check=request.validate_only,
            is_repeated=times[one.resource_type, one.resource_name] > 1,
        )
        for place, one in enumerate(request.resources)
        if one.resource_type == ConfigResourceType.BROKER_LOGGER
    }


def _merged(resources: Sequence[Any], own: Mapping[int, T], answered: Iterable[T]) -> list[T]:
    """Return the outcomes in the order of the request."""
    others: dict[tuple[int, str], Any] = {
        (one.resource_type, one.resource_name): one for one in cast("Iterable[Any]", answered)
    }
    return [
        own[place] if place in own else others[one.resource_type, one.resource_name]
        for place, one in enumerate(resources)
    ]


def _forward_replaced(ctx: Context, request: AlterConfigsRequest) -> Pending[AlterConfigsResponse]:
    return per_item_errors(
        ctx.controller.send(request, ctx.requester()),
        lambda error: AlterConfigsResponse(
            responses=[Replaced(**error, **_named(one)) for one in request.resources]
        ),
    )


def _forward(
    ctx: Context, request: IncrementalAlterConfigsRequest
) -> Pending[IncrementalAlterConfigsResponse]:
    return _or_failed(request, ctx.controller.send(request, ctx.requester()))


def _or_failed(
    request: IncrementalAlterConfigsRequest, answer: Pending[IncrementalAlterConfigsResponse]
) -> Pending[IncrementalAlterConfigsResponse]:
    return per_item_errors(
        answer,
        lambda error: IncrementalAlterConfigsResponse(
            responses=[Outcome(**error, **_named(one)) for one in request.resources]
        ),
    )


def _error(error: KafkaError) -> dict[str, Any]:
    return {"error_code": int(error.code), "error_message": specific_message(error)}


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
        if ctx.listener != "controller" and not ctx.authorize(
            Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME
        ):  # at a controller the guard has checked
            outcome.error_code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return outcome
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        _check_settings(resource)
        check_this_node(ctx.broker.node_id, resource.resource_name, "node id. Expected")
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
