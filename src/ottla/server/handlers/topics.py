"""CreateTopics, DeleteTopics and CreatePartitions.

Kafka: ControllerApis.createTopics and others; the decisions are in controller.topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.topic_deletion import requested_topics
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.server.handlers.refusals import per_item_errors
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context

Created = CreateTopicsResponse.CreatableTopicResult
Deleted = DeleteTopicsResponse.DeletableTopicResult
Grown = CreatePartitionsResponse.CreatePartitionsTopicResult


@handles(CreateTopicsRequest)
def create_topics(ctx: Context, request: CreateTopicsRequest) -> Pending[CreateTopicsResponse]:
    """Create topics; answered when they are committed and have a leader."""
    return per_item_errors(
        ctx.controller.send(request, ctx.requester(strict_from=6)),
        lambda error: CreateTopicsResponse(
            topics=[Created(name=topic.name, **error) for topic in request.topics]
        ),
    )


@handles(DeleteTopicsRequest)
def delete_topics(ctx: Context, request: DeleteTopicsRequest) -> Pending[DeleteTopicsResponse]:
    """Delete topics by name or id."""
    return per_item_errors(
        ctx.controller.send(request, ctx.requester(strict_from=5)),
        lambda error: DeleteTopicsResponse(
            responses=[
                Deleted(name=name, topic_id=topic_id, **error)
                for name, topic_id in requested_topics(request)
            ]
        ),
    )


@handles(CreatePartitionsRequest)
def create_partitions(
    ctx: Context, request: CreatePartitionsRequest
) -> Pending[CreatePartitionsResponse]:
    """Add partitions to topics."""
    return per_item_errors(
        ctx.controller.send(request, ctx.requester(strict_from=3)),
        lambda error: CreatePartitionsResponse(
            results=[Grown(name=topic.name, **error) for topic in request.topics]
        ),
    )
