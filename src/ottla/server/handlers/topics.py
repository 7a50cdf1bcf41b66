"""CreateTopics, DeleteTopics and CreatePartitions.

Kafka: ControllerApis.createTopics and others; the decisions are in controller.topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.requests.api import handles
from ottla.server.requests.rights import Each, Reduced, cut

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context
    from ottla.server.requests.rights import Decision

_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _may_create(ctx: Context, request: CreateTopicsRequest) -> Decision | None:
    """CREATE on the cluster or on the topic."""
    may_all = ctx.is_allowed(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    result = CreateTopicsResponse.CreatableTopicResult
    return cut(
        ctx,
        request,
        "topics",
        lambda topic: may_all or ctx.authorize(Operation.CREATE, ResourceType.TOPIC, topic.name),
        lambda topic: result(
            name=topic.name,
            error_code=int(_DENIED),
            error_message="Authorization failed.",
            configs=[],
        ),
    )


def _may_see_settings(ctx: Context, request: CreateTopicsRequest) -> Reduced:
    """DESCRIBE_CONFIGS on the topic to see the resulting settings."""

    def finish(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for topic in response.topics:
            if topic.error_code:
                continue
            if not ctx.is_allowed(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
                topic.topic_config_error_code = int(_DENIED)
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        return response

    return Reduced(request, finish)


@handles(
    CreateTopicsRequest,
    right=(_may_create, _may_see_settings),
    forwarded=True,
    refused_over_quota_from=6,
    notes={
        5: "the resulting settings",
        6: "over the mutation quota refused (KIP-599)",
        7: "topic ids (KIP-516)",
    },
)
def create_topics(ctx: Context, request: CreateTopicsRequest) -> Pending[CreateTopicsResponse]:
    """Create topics; answered when they are committed and have a leader."""
    return ctx.controller.send(request, ctx.requester())


def _may_delete(ctx: Context, request: DeleteTopicsRequest) -> Decision | None:
    """DELETE on the cluster, or DESCRIBE and DELETE on the topic.

    The refusal of a topic given by its id names it only to a client that may describe it.
    """
    if ctx.is_allowed(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME):
        return None

    def may(operation: Operation, name: str) -> bool:
        return ctx.authorize(operation, ResourceType.TOPIC, name)

    def is_allowed(name: str) -> bool:
        return may(Operation.DESCRIBE, name) and may(Operation.DELETE, name)

    def refuse(name: str | None, **topic_id: Any) -> Any:
        code = _DENIED
        is_absent = name is not None and name not in ctx.broker.image.topics.by_name
        if is_absent and ctx.is_allowed(Operation.DESCRIBE, ResourceType.TOPIC, name or ""):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeleteTopicsResponse.DeletableTopicResult(
            name=name, error_code=int(code), error_message=code.text, **topic_id
        )

    if request.topic_names:  # the list of older versions
        return cut(ctx, request, "topic_names", is_allowed, refuse)

    def name_of(topic: Any) -> str | None:
        return topic.name if topic.name is not None else ctx.broker.topic_name(topic.topic_id)

    def is_left(topic: Any) -> bool:
        """Whether the topic may be deleted, is not known, or is refused for having two names."""
        is_invalid = topic.name is not None and bool(topic.topic_id)
        return is_invalid or (name := name_of(topic)) is None or is_allowed(name)

    def refuse_topic(topic: Any) -> Any:
        name = name_of(topic)
        is_hidden = topic.name is None and not may(Operation.DESCRIBE, name or "")
        return refuse(None if is_hidden else name, topic_id=topic.topic_id)

    return cut(ctx, request, "topics", is_left, refuse_topic)


@handles(
    DeleteTopicsRequest,
    right=_may_delete,
    forwarded=True,
    refused_over_quota_from=5,
    notes={
        5: "over the mutation quota refused (KIP-599)",
        6: "topics by id (KIP-516)",
    },
)
def delete_topics(ctx: Context, request: DeleteTopicsRequest) -> Pending[DeleteTopicsResponse]:
    """Delete topics by name; v6 by name or id (KIP-516)."""
    return ctx.controller.send(request, ctx.requester())


@handles(
    CreatePartitionsRequest,
    right=Each(Operation.ALTER, ResourceType.TOPIC, "topics", "name", has_text=False),
    forwarded=True,
    refused_over_quota_from=3,
    notes={3: "over the mutation quota refused (KIP-599)"},
)
def create_partitions(
    ctx: Context, request: CreatePartitionsRequest
) -> Pending[CreatePartitionsResponse]:
    """Add partitions to topics."""
    return ctx.controller.send(request, ctx.requester())
