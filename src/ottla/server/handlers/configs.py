"""DescribeConfigs and the two Alter APIs.

Kafka: kafka.server.ConfigHelper, KafkaApis.handleDescribeConfigsRequest.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from ottla.config.describe import (
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.server.dispatch import handles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.config.describe import Entry
    from ottla.purgatory.pending import Pending
    from ottla.server.context import Context

    Resource = DescribeConfigsRequest.DescribeConfigsResource

Result = DescribeConfigsResponse.DescribeConfigsResult
ResourceResult = Result.DescribeConfigsResourceResult


class ResourceType(IntEnum):
    """What settings can belong to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


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
    if kind == ResourceType.TOPIC:
        return _topic_entries(ctx, name, names)
    if kind == ResourceType.BROKER:
        return _broker_entries(ctx, name, names)
    if kind == ResourceType.GROUP:
        own = ctx.broker.stored_configs(kind, name)
        return describe_group(own, ctx.broker.config_sources(), names)
    if kind == ResourceType.CLIENT_METRICS:
        return describe_client_metrics(ctx.broker.stored_configs(kind, name), names)
    if kind == ResourceType.BROKER_LOGGER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker loggers are not built yet.")
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _topic_entries(ctx: Context, name: str, names: Sequence[str] | None) -> Iterator[Entry]:
    if ctx.broker.image.topics.by_name.get(name) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return describe_topic(ctx.broker.topic_config(name), ctx.broker.config_sources(), names)


def _broker_entries(ctx: Context, name: str, names: Sequence[str] | None) -> Iterator[Entry]:
    sources = ctx.broker.config_sources()
    if not name:
        return describe_cluster_default(sources, names)
    try:
        node_id = int(name)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Broker id must be an integer, but it is: {name}",
        ) from None
    if node_id != ctx.broker.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {ctx.broker.node_id} or empty string, "
            f"but received {name}",
        )
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
    )
    if request.include_documentation:
        result.documentation = entry.documentation
    if request.include_synonyms:
        result.synonyms = [
            ResourceResult.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=int(synonym.source)
            )
            for synonym in entry.synonyms
        ]
    return result


@handles(IncrementalAlterConfigsRequest)
def incremental_alter_configs(
    ctx: Context, request: IncrementalAlterConfigsRequest
) -> Pending[IncrementalAlterConfigsResponse]:
    """Set, delete, append to or subtract from single settings (KIP-339)."""
    return ctx.broker.controller.incremental_alter_configs(request)


@handles(AlterConfigsRequest)
def alter_configs(ctx: Context, request: AlterConfigsRequest) -> Pending[AlterConfigsResponse]:
    """Replace all settings of a resource (the old API)."""
    return ctx.broker.controller.alter_configs(request)
