"""ListConfigResources: the resources that have, or can have, settings.

Kafka: KafkaApis.handleListConfigResources (KIP-1000, KIP-1142).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ConfigResourceType
from ottla.protocol.apis.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.security.acl import Operation
from ottla.server.requests.api import handles
from ottla.server.requests.rights import Right

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.server.requests.context import Context

_SINCE_0 = frozenset({int(ConfigResourceType.CLIENT_METRICS)})
_SINCE_1 = frozenset(int(kind) for kind in ConfigResourceType if kind)
_STORED = (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS)
"""Resource types that are listed only if they have settings."""


@handles(
    ListConfigResourcesRequest,
    right=Right(Operation.DESCRIBE_CONFIGS),
    notes={1: "all types, before that client metrics alone"},
)
def list_config_resources(
    ctx: Context, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List topics, brokers and their loggers, and the groups and subscriptions with settings."""
    supported = _SINCE_1 if ctx.api_version else _SINCE_0
    requested = set(request.resource_types) or supported
    for kind in request.resource_types:
        if kind not in supported:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported resource type {kind}")
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind, name in _resources(ctx)
            if kind in requested
        ]
    )


def _resources(ctx: Context) -> Iterator[tuple[int, str]]:
    broker = ctx.broker
    for resource in broker.image.configs.by_resource:
        if resource.type in _STORED:
            yield resource.type, resource.name
    for node_id, one in broker.image.cluster.brokers.items():  # fenced ones, too
        if one.node(ctx.listener_name) is not None:
            yield ConfigResourceType.BROKER_LOGGER, str(node_id)
            yield ConfigResourceType.BROKER, str(node_id)
    for name in broker.image.topics.by_name:
        yield ConfigResourceType.TOPIC, name
