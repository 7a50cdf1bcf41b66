"""Rights of APIs about settings: of topics, groups, brokers and client metrics.

Kafka: kafka.server.{ConfigHelper, ConfigAdminManager, ControllerApis}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode
from ottla.metadata.resources import ConfigResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.alter_configs import AlterConfigsResponse
from ottla.protocol.apis.describe_configs import DescribeConfigsResponse
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsResponse
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.handlers.rights.topics import reduce
from ottla.server.requests.guards import Denied, guards

if TYPE_CHECKING:
    from ottla.server.requests.context import Context
    from ottla.server.requests.guards import Finish

_CLUSTER: Final = (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_RESOURCES: Final = {
    int(ConfigResourceType.TOPIC): (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    int(ConfigResourceType.GROUP): (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}


def _may(ctx: Context, operation: Operation, one: Any) -> bool:
    kind, _ = _RESOURCES.get(one.resource_type, _CLUSTER)
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else one.resource_name
    return ctx.authorize(operation, kind, name)


def _error(one: Any) -> dict[str, Any]:
    _, code = _RESOURCES.get(one.resource_type, _CLUSTER)
    return {
        "error_code": int(code),
        "error_message": code.text,
        "resource_type": one.resource_type,
        "resource_name": one.resource_name,
    }


@guards(ApiKey.DESCRIBE_CONFIGS)
def describe_configs(ctx: Context, request: Any) -> Finish | None:
    """DESCRIBE_CONFIGS on each resource."""
    result = DescribeConfigsResponse.DescribeConfigsResult
    return reduce(
        request.resources,
        lambda one: _may(ctx, Operation.DESCRIBE_CONFIGS, one),
        lambda one: result(**_error(one), configs=[]),
        "results",
    )


@guards(ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
def alter_configs(ctx: Context, request: Any) -> Finish | Denied | None:
    """ALTER_CONFIGS on each resource; on a controller its loggers need CLUSTER_ACTION.

    The responses keep the order of the request, as Kafka's brokers do.
    """
    is_incremental = ctx.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS
    response = IncrementalAlterConfigsResponse if is_incremental else AlterConfigsResponse
    is_controller = ctx.listener == "controller" and not ctx.is_forwarded

    def is_allowed(one: Any) -> bool:
        if is_controller and one.resource_type == ConfigResourceType.BROKER_LOGGER:
            return _may(ctx, Operation.CLUSTER_ACTION, one)
        return _may(ctx, Operation.ALTER_CONFIGS, one)

    places: dict[tuple[int, str], int] = {}
    for place, one in enumerate(request.resources):
        places.setdefault((one.resource_type, one.resource_name), place)
    add = reduce(
        request.resources,
        is_allowed,
        lambda one: response.AlterConfigsResourceResponse(**_error(one)),
        "responses",
    )
    if add is None:
        return None

    def finish(answer: Any) -> Any:
        add(answer).responses.sort(
            key=lambda one: places.get((one.resource_type, one.resource_name), len(places))
        )
        return answer

    return finish if request.resources else Denied(finish(response(responses=[])))
