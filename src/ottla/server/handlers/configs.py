"""DescribeConfigs.

Kafka: kafka.server.ConfigHelper, KafkaApis.handleDescribeConfigsRequest.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.config.describe import (
    DescribedSetting,
    Source,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from ottla.controller.topic_names import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ConfigResourceType
from ottla.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.logging.loggers import logger_levels
from ottla.server.requests.api import handles
from ottla.server.requests.refusals import refused
from ottla.server.requests.rights import REFUSALS, cut, refusal

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from ottla.server.requests.context import Context
    from ottla.server.requests.rights import Decision

    Resource = DescribeConfigsRequest.DescribeConfigsResource

Result = DescribeConfigsResponse.DescribeConfigsResult
ResourceResult = Result.DescribeConfigsResourceResult
_DESCRIBABLE = frozenset(int(kind) for kind in ConfigResourceType if kind)
_OF_BROKERS = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


_RESOURCES = {
    int(ConfigResourceType.TOPIC): ResourceType.TOPIC,
    int(ConfigResourceType.GROUP): ResourceType.GROUP,
}
"""Those with rights of their own; others are parts of the cluster."""


def may_use(ctx: Context, operation: Operation, resource: Any) -> bool:
    """Whether the client may do this with the settings of a resource."""
    kind = _RESOURCES.get(resource.resource_type, ResourceType.CLUSTER)
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
    return ctx.authorize(operation, kind, name)


def refuse_resource(ctx: Context, request: Any, resource: Any) -> Any:
    """Return the result of a resource for which the client has no right."""
    kind = _RESOURCES.get(resource.resource_type, ResourceType.CLUSTER)
    return refusal(ctx, request, "resources", REFUSALS[kind])(resource)


def _may_describe(ctx: Context, request: DescribeConfigsRequest) -> Decision | None:
    """DESCRIBE_CONFIGS on each topic or group; for other resources on the cluster."""
    return cut(
        ctx,
        request,
        "resources",
        partial(may_use, ctx, Operation.DESCRIBE_CONFIGS),
        partial(refuse_resource, ctx, request),
    )


@handles(
    DescribeConfigsRequest,
    right=_may_describe,
    notes={3: "types and documentation (KIP-569)"},
)
def describe_configs(ctx: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource's settings: value, source, synonyms.

    Results are shared between resources with the same settings: most topics have only defaults,
    and one request may name a resource several times.
    """
    if any(one.resource_type not in _DESCRIBABLE for one in request.resources):
        error = KafkaError(ErrorCode.INVALID_REQUEST)  # one of them has an unknown type
        response: DescribeConfigsResponse = refused(request, error, ctx.api_version)
        return response
    shared: dict[Hashable, list[ResourceResult]] = {}
    return DescribeConfigsResponse(
        results=[_describe(ctx, request, resource, shared) for resource in request.resources]
    )


def _describe(
    ctx: Context,
    request: DescribeConfigsRequest,
    resource: Resource,
    shared: dict[Hashable, list[ResourceResult]],
) -> Result:
    kind, name = resource.resource_type, resource.resource_name
    result = Result(error_message="", resource_type=kind, resource_name=name, configs=[])
    try:
        _check(ctx, kind, name)
    except KafkaError as error:
        result.error_code = int(error.code)
        result.error_message = error.message
        return result
    own = tuple(ctx.broker.image.configs.of(kind, name).items())
    # topics, groups and subscriptions differ only by their own settings
    key = (kind, name if kind in _OF_BROKERS else own, *(resource.configuration_keys or ()))
    configs = shared.get(key)
    if configs is None:
        entries = _entries(ctx, kind, name, resource.configuration_keys or None)
        configs = shared[key] = [_result(entry, request) for entry in entries]
    result.configs = configs
    return result


def _check(ctx: Context, kind: int, name: str) -> None:
    """Raise KafkaError if the resource does not exist."""
    if kind == ConfigResourceType.TOPIC:
        check_topic_name(name)
        if ctx.broker.image.topics.by_name.get(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    elif kind == ConfigResourceType.BROKER:
        if name:
            own = ctx.broker.node_id
            _must_be_this_broker(ctx, name, f"expected {own} or empty string, but received {name}")
    elif kind == ConfigResourceType.BROKER_LOGGER:
        _must_be_named(name, "Broker id")
        _must_be_this_broker(ctx, name, f"expected {ctx.broker.node_id} but received {name}")
    elif kind == ConfigResourceType.GROUP:
        _must_be_named(name, "Group name")
    elif kind == ConfigResourceType.CLIENT_METRICS:
        _must_be_named(name, "Client metrics subscription name")


def _entries(
    ctx: Context, kind: int, name: str, names: Sequence[str] | None
) -> Iterator[DescribedSetting]:
    """Describe an existing resource."""
    metadata = ctx.broker.metadata
    if kind == ConfigResourceType.BROKER_LOGGER:
        return _logger_entries(names)
    if kind == ConfigResourceType.CLIENT_METRICS:
        return describe_client_metrics(metadata.image.configs.of(kind, name), names)
    sources = metadata.config_sources()
    if kind == ConfigResourceType.GROUP:
        return describe_group(metadata.image.configs.of(kind, name), sources, names)
    if kind == ConfigResourceType.TOPIC:
        return describe_topic(metadata.topic_config(name), sources, names)
    return describe_broker(sources, names) if name else describe_cluster_default(sources, names)


def _must_be_named(name: str, what: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} must not be empty")


def _must_be_this_broker(ctx: Context, name: str, difference: str) -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        ) from None
    if node_id != ctx.broker.node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, {difference}")


def _logger_entries(names: Sequence[str] | None) -> Iterator[DescribedSetting]:
    for name, level in logger_levels().items():
        if names is None or name in names:
            yield DescribedSetting(
                name=name,
                value=level,
                read_only=False,
                source=Source.DYNAMIC_BROKER_LOGGER_CONFIG,
                sensitive=False,
                type=0,
                synonyms=(),
                documentation="",
            )


def _result(entry: DescribedSetting, request: DescribeConfigsRequest) -> ResourceResult:
    result = ResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.sensitive,
        config_type=entry.type,
        synonyms=[],
        documentation=entry.documentation,
    )
    is_logger = entry.source is Source.DYNAMIC_BROKER_LOGGER_CONFIG
    if not request.include_documentation and not is_logger:
        result.documentation = None
    if request.include_synonyms:
        result.synonyms = [
            ResourceResult.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=int(synonym.source)
            )
            for synonym in entry.synonyms
        ]
    return result
