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
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from ottla.server.requests.context import Context
    from ottla.storage.producers.entry import ProducerEntry

TopicResponse = DescribeProducersResponse.TopicResponse
PartitionResponse = TopicResponse.PartitionResponse


@handles(DescribeProducersRequest)
def describe_producers(
    ctx: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describe the producer state of the requested partitions."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(ctx, topic.name, one) for one in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(ctx: Context, topic: str, index: int) -> PartitionResponse:
    response = PartitionResponse(partition_index=index, active_producers=[])
    try:
        check_topic_name(topic)
        if ctx.broker.image.topics.topic_id(topic) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except KafkaError as error:
        response.error_code = int(error.code)
        response.error_message = error.message
        return response
    try:
        partition = ctx.broker.replicas.get(topic, index)
        partition.check_epoch()  # followers describe what they have, too
    except KafkaError as error:
        response.error_code = int(error.code)
        return response
    producers = partition.log.producer_state.producers
    response.active_producers = [_state(entry) for entry in producers.values()]
    return response


def _state(entry: ProducerEntry) -> PartitionResponse.ProducerState:
    return PartitionResponse.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
