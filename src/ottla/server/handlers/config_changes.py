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
from ottla.server.handlers.configs import may_use, refuse_resource
from ottla.server.handlers.own_settings import check_this_node, when_checked
from ottla.server.logging.loggers import DELETE, change_levels
from ottla.server.requests.api import handles
from ottla.server.requests.rights import Denied, Reduced, cut, refusing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context
    from ottla.server.requests.rights import Decision

    Resource = IncrementalAlterConfigsRequest.AlterConfigsResource

T = TypeVar("T")
Outcome = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
Replaced = AlterConfigsResponse.AlterConfigsResourceResponse


def _may_alter(ctx: Context, request: Any) -> Decision | None:
    """ALTER_CONFIGS on each topic or group; for other resources on the cluster.

    A controller's own loggers need CLUSTER_ACTION. The responses keep the order of the request, as
    Kafka's brokers do.
    """
    is_controller = ctx.listener == "controller" and not ctx.is_forwarded

    def is_allowed(resource: Any) -> bool:
        is_logger = resource.resource_type == ConfigResourceType.BROKER_LOGGER
        action = is_controller and is_logger
        return may_use(
            ctx, Operation.CLUSTER_ACTION if action else Operation.ALTER_CONFIGS, resource
        )

    refuse = partial(refuse_resource, ctx, request)
    decision = cut(ctx, request, "resources", is_allowed, refuse)
    if decision is None:
        return None
    places: dict[tuple[int, str], int] = {}
    for place, resource in enumerate(request.resources):
        places.setdefault((resource.resource_type, resource.resource_name), place)

    def in_order(answer: Any) -> Any:
        answer.responses.sort(
            key=lambda result: places.get((result.resource_type, result.resource_name), len(places))
        )
        return answer

    if isinstance(decision, Denied):
        return Denied(in_order(decision.response))
    finish = decision.finish
    return Reduced(decision.request, lambda answer: in_order(finish(answer)))


@handles(AlterConfigsRequest, right=_may_alter, forwarded=True)
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
        return ctx.controller.send(request, ctx.requester())
    others = [one for place, one in enumerate(request.resources) if place not in own]
    if not others:
        return AlterConfigsResponse(responses=list(own.values()))
    forwarded = AlterConfigsRequest(resources=others, validate_only=request.validate_only)
    return _forward(ctx, forwarded).then(
        lambda got: AlterConfigsResponse(responses=_merged(request.resources, own, got.responses))
    )


@handles(IncrementalAlterConfigsRequest, right=_may_alter, forwarded=True)
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
        return ctx.controller.send(request, ctx.requester())
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
        return ctx.controller.send(forwarded, ctx.requester()).then(merged)
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


def _forward(ctx: Context, request: Any) -> Pending[Any]:
    """Send a part of the request: its refusal must be merged with the rest."""
    answer: Pending[Any] = refusing(
        ctx, request, lambda part: ctx.controller.send(part, ctx.requester())
    )
    return answer


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
