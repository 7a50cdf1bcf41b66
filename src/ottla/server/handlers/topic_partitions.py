"""DescribeTopicPartitions: topics in pages, with their eligible leader replicas.

Kafka: kafka.server.handlers.DescribeTopicPartitionsRequestHandler (KIP-966).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.topic_names import is_topic_name
from ottla.errors import ErrorCode
from ottla.protocol.apis.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from ottla.security.acl import Operation, ResourceType
from ottla.server.broker.internal_topics import INTERNAL_TOPICS
from ottla.server.broker.partition_view import view_of
from ottla.server.requests.api import handles
from ottla.server.requests.rights import ByHandler
from ottla.types import ZERO_UUID

if TYPE_CHECKING:
    from ottla.metadata.partition import PartitionRegistration
    from ottla.server.requests.context import Context

TopicResponse = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
PartitionResponse = TopicResponse.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor


@handles(DescribeTopicPartitionsRequest, right=ByHandler("DESCRIBE on each topic"))
def describe_topic_partitions(
    ctx: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describe topics by name, up to the partition limit per response."""
    requested = {topic.name for topic in request.topics}
    may_fail = "" in requested and request.cursor is None
    if may_fail and ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, ""):
        return _refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka fails on it
    start_topic, start_partition = "", 0
    if request.cursor is not None:
        start_topic = request.cursor.topic_name
        start_partition = request.cursor.partition_index
        if start_partition < 0 or (requested and start_topic not in requested):
            return _refuse(request, ErrorCode.INVALID_REQUEST)
    limit = min(
        ctx.broker.metadata.config.max_request_partition_size_limit,
        request.response_partition_limit,
    )
    names = requested or {
        name
        for name in ctx.broker.image.topics.by_name
        if ctx.is_allowed(Operation.DESCRIBE, ResourceType.TOPIC, name)
    }
    return _page(
        ctx,
        sorted(name for name in names if name >= start_topic),
        limit=max(limit, 1),
        start=(start_topic, start_partition),
    )


def _refuse(
    request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    """Refuse the request for each of its topics."""
    return DescribeTopicPartitionsResponse(
        topics=[
            TopicResponse(error_code=int(code), name=topic.name, topic_id=ZERO_UUID, partitions=[])
            for topic in request.topics
        ]
    )


def _page(
    ctx: Context, names: list[str], *, limit: int, start: tuple[str, int]
) -> DescribeTopicPartitionsResponse:
    answer = DescribeTopicPartitionsResponse(topics=[])
    left = limit
    for name in names:
        if left == 0:
            answer.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic, following = _describe(ctx, name, start[1] if name == start[0] else 0, left)
        answer.topics.append(topic)
        if following is not None:
            answer.next_cursor = Cursor(topic_name=name, partition_index=following)
            break
        left -= len(topic.partitions)
    return answer


def _describe(ctx: Context, name: str, first: int, limit: int) -> tuple[TopicResponse, int | None]:
    """Describe one topic from a partition on; return the next partition if some remain."""
    image = ctx.broker.image.topics.by_name.get(name)
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
        denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return TopicResponse(error_code=denied, name=name, topic_id=ZERO_UUID, partitions=[]), None
    if image is None:
        known = is_topic_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.INVALID_TOPIC_EXCEPTION
        unknown = TopicResponse(
            error_code=int(code),
            name=name,
            topic_id=ZERO_UUID,
            partitions=[],
            topic_authorized_operations=ctx.operations(ResourceType.TOPIC, name),
        )
        return unknown, None
    indexes = [index for index in sorted(image.partitions) if index >= first]
    topic = TopicResponse(
        name=name,
        topic_id=image.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[_partition(ctx, index, image.partitions[index]) for index in indexes[:limit]],
        topic_authorized_operations=ctx.operations(ResourceType.TOPIC, name),
    )
    return topic, indexes[limit] if len(indexes) > limit else None


def _partition(ctx: Context, index: int, partition: PartitionRegistration) -> PartitionResponse:
    view = view_of(ctx.broker.image.cluster.brokers, partition, ctx.listener_name)
    return PartitionResponse(  # without an error code, as in Kafka, even without a leader
        partition_index=index,
        leader_id=view.leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=view.offline_replicas,
    )
