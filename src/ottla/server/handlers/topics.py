"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords.

Kafka: ControllerApis.createTopics and its neighbours; the decisions are in controller.topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.topic_deletion import requested_topics
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.apis.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.server.broker.internal_topics import INTERNAL_TOPICS
from ottla.server.handlers.refusals import per_item_errors
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context

    RequestedPartition = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition

Created = CreateTopicsResponse.CreatableTopicResult
Deleted = DeleteTopicsResponse.DeletableTopicResult
Grown = CreatePartitionsResponse.CreatePartitionsTopicResult
RecordsTopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
RecordsResult = RecordsTopicResult.DeleteRecordsPartitionResult
HIGH_WATERMARK = -1


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


@handles(DeleteRecordsRequest)
def delete_records(ctx: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Move log start offsets up; -1 means the high watermark (KIP-107).

    For a partition named several times the last entry counts.
    """
    requested: dict[str, dict[int, RequestedPartition]] = {}
    for topic in request.topics:
        partitions = requested.setdefault(topic.name, {})
        partitions.update((one.partition_index, one) for one in topic.partitions)
    return DeleteRecordsResponse(
        topics=[
            RecordsTopicResult(
                name=name,
                partitions=[_delete_before(ctx, name, one) for one in partitions.values()],
            )
            for name, partitions in requested.items()
            if partitions
        ]
    )


def _delete_before(ctx: Context, topic: str, requested: RequestedPartition) -> RecordsResult:
    result = RecordsResult(partition_index=requested.partition_index, low_watermark=-1)
    try:
        if topic in INTERNAL_TOPICS and ctx.broker.has_partition(topic, requested.partition_index):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = ctx.broker.replicas.get(topic, requested.partition_index)
        partition.check_leader()
        log = partition.log
        if log.config.is_compacted and not log.config.deletes_by_retention:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        offset = log.high_watermark if requested.offset == HIGH_WATERMARK else requested.offset
        log.truncation.delete_records_before(offset)
        result.low_watermark = log.log_start_offset
    except KafkaError as error:
        result.error_code = int(error.code)
    return result
