"""DescribeProducers: the active producers and open transactions of a partition.

Kafka: KafkaApis.handleDescribeProducersRequest, UnifiedLog.activeProducers (KIP-664).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.topic_names import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from ottla.security.acl import Operation, ResourceType
from ottla.server.requests.api import handles
from ottla.server.requests.rights import Each

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.work import Work
    from ottla.server.requests.context import Context
    from ottla.storage.producers.entry import ProducerEntry

TopicResponse = DescribeProducersResponse.TopicResponse
PartitionResponse = TopicResponse.PartitionResponse


@handles(
    DescribeProducersRequest,
    right=Each(Operation.READ, ResourceType.TOPIC, "topics", "name", "in place"),
)
def describe_producers(
    ctx: Context, request: DescribeProducersRequest
) -> Pending[DescribeProducersResponse]:
    """Describe the producers of partitions."""
    return ctx.broker.worker.run(_describe_all(ctx, request))


def _describe_all(
    ctx: Context, request: DescribeProducersRequest
) -> Work[DescribeProducersResponse]:
    response = DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=one, active_producers=[])
                    for one in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )
    for topic in response.topics:
        for partition in topic.partitions:
            yield from _describe(ctx, topic.name, partition)
    return response


def _describe(ctx: Context, topic: str, response: PartitionResponse) -> Work[None]:
    try:
        check_topic_name(topic)
        if ctx.broker.image.topics.topic_id(topic) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except KafkaError as error:
        response.error_code = int(error.code)
        response.error_message = error.message
        return
    try:
        partition = ctx.broker.replicas.get(topic, response.partition_index)
        partition.check_epoch()  # followers describe their state as well
    except KafkaError as error:
        response.error_code = int(error.code)
        return
    for entry in list(partition.log.producer_state.producers.values()):
        response.active_producers.append(_state(entry))
        yield


def _state(entry: ProducerEntry) -> PartitionResponse.ProducerState:
    return PartitionResponse.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
