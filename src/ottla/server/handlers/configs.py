"""DescribeConfigs.

Kafka: kafka.server.ConfigHelper, KafkaApis.handleDescribeConfigsRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.describe import (
    Entry,
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
from ottla.server.dispatch import handles
from ottla.server.loggers import logger_levels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.server.context import Context

    Resource = DescribeConfigsRequest.DescribeConfigsResource

Result = DescribeConfigsResponse.DescribeConfigsResult
ResourceResult = Result.DescribeConfigsResourceResult


@handles(DescribeConfigsRequest)
def describe_configs(ctx: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource's settings: value, source, synonyms."""
    return DescribeConfigsResponse(
        results=[_describe(ctx, request, resource) for resource in request.resources]
    )


def _describe(ctx: Context, request: DescribeConfigsRequest, resource: Resource) -> Result:
    result = Result(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    try:
        entries = list(_entries(ctx, resource))
    except KafkaError as error:
        result.error_code = int(error.code)
        result.error_message = error.message
        return result
    result.configs = [_shape(entry, request) for entry in entries]
    return result


def _entries(ctx: Context, resource: Resource) -> Iterator[Entry]:
    names = resource.configuration_keys or None
    kind, name = resource.resource_type, resource.resource_name
    if kind == ConfigResourceType.TOPIC:
        return _topic_entries(ctx, name, names)
    if kind == ConfigResourceType.BROKER:
        return _broker_entries(ctx, name, names)
    if kind == ConfigResourceType.GROUP:
        _must_be_named(name, "Group name")
        own = ctx.broker.stored_configs(kind, name)
        return describe_group(own, ctx.broker.config_sources(), names)
    if kind == ConfigResourceType.CLIENT_METRICS:
        _must_be_named(name, "Client metrics subscription name")
        return describe_client_metrics(ctx.broker.stored_configs(kind, name), names)
    if kind == ConfigResourceType.BROKER_LOGGER:
        _must_be_named(name, "Broker id")
        _must_be_this_broker(ctx, name, f"expected {ctx.broker.node_id} but received {name}")
        return _logger_entries(names)
    raise KafkaError(ErrorCode.INVALID_REQUEST)


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


def _logger_entries(names: Sequence[str] | None) -> Iterator[Entry]:
    for name, level in logger_levels().items():
        if names is None or name in names:
            yield Entry(
                name=name,
                value=level,
                read_only=False,
                source=Source.DYNAMIC_BROKER_LOGGER_CONFIG,
                sensitive=False,
                type=0,
                synonyms=(),
                documentation="",
            )


def _topic_entries(ctx: Context, name: str, names: Sequence[str] | None) -> Iterator[Entry]:
    check_topic_name(name)
    if ctx.broker.image.topics.by_name.get(name) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    return describe_topic(ctx.broker.topic_config(name), ctx.broker.config_sources(), names)


def _broker_entries(ctx: Context, name: str, names: Sequence[str] | None) -> Iterator[Entry]:
    sources = ctx.broker.config_sources()
    if not name:
        return describe_cluster_default(sources, names)
    own = ctx.broker.node_id
    _must_be_this_broker(ctx, name, f"expected {own} or empty string, but received {name}")
    return describe_broker(sources, names)


def _shape(entry: Entry, request: DescribeConfigsRequest) -> ResourceResult:
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
