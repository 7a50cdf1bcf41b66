"""DescribeProducers: the active producers and open transactions of a partition.

Kafka: KafkaApis.handleDescribeProducersRequest, UnifiedLog.activeProducers (KIP-664).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.controller.topic_names import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from ottla.server.requests.api import handles
from ottla.server.requests.slices import in_slices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context
    from ottla.storage.producers.entry import ProducerEntry

TopicResponse = DescribeProducersResponse.TopicResponse
PartitionResponse = TopicResponse.PartitionResponse
PRODUCERS_IN_A_TURN: Final = 1_000
"""At some 4 µs each."""


@handles(DescribeProducersRequest)
def describe_producers(
    ctx: Context, request: DescribeProducersRequest
) -> Pending[DescribeProducersResponse]:
    """Describe the producers of partitions, PRODUCERS_IN_A_TURN in one turn of the loop."""
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
    steps = (
        step
        for topic in response.topics
        for partition in topic.partitions
        for step in _describe(ctx, topic.name, partition)
    )
    return in_slices(ctx.broker.replicas.call_soon, steps, PRODUCERS_IN_A_TURN, response)


def _describe(ctx: Context, topic: str, response: PartitionResponse) -> Iterator[None]:
    """Fill the response in steps of one producer."""
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
