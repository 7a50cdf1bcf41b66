"""What a produce request is told of one partition, and when: not before a flush that is due.

Kafka: KafkaApis.handleProduceRequest, ProduceResponse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.produce import ProduceResponse
from ottla.records.validation_rules import RecordValidationError
from ottla.records.validator import UnreadableRecords
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.purgatory.pending import Pending
    from ottla.replication.partition import Partition
    from ottla.server.requests.context import Context
    from ottla.storage.log.append_info import AppendInfo

TopicResponse = ProduceResponse.TopicProduceResponse
PartitionResponse = TopicResponse.PartitionProduceResponse
# Kafka tells the log's start with all other errors of an append
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


def appended(index: int, info: AppendInfo) -> PartitionResponse:
    """Tell where the records are."""
    return PartitionResponse(
        index=index,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )


def failed(index: int, error: KafkaError, partition: Partition | None = None) -> PartitionResponse:
    """Shape a refusal; only records that break a rule of the topic are told why, as in Kafka."""
    response = PartitionResponse(
        index=index, error_code=int(error.code), base_offset=-1, log_append_time_ms=-1
    )
    if isinstance(error, RecordValidationError):
        response.error_message = error.message
        response.record_errors = [
            PartitionResponse.BatchIndexAndErrorMessage(
                batch_index=batch_index, batch_index_error_message=message
            )
            for batch_index, message in error.record_errors
        ]
    if isinstance(error, UnreadableRecords):
        if error.message != error.code.text:
            response.error_message = error.message
    elif partition is not None and error.code not in _WITHOUT_LOG_START:
        partition.failed_append_count += 1  # Kafka leaves out what clients must expect
        response.log_start_offset = partition.log.log_start_offset
    return response


def after_flushes(ctx: Context, responses: list[TopicResponse], then: Callable[[], object]) -> None:
    """Go on once the logs that were just appended to are flushed, where they have to be."""
    replicas = ctx.broker.replicas
    if not replicas.overdue_flushes:
        then()
        return
    waits = replicas.logs.await_flushes()
    left = len(waits)

    def one_is_over(_wait: Pending[None]) -> None:
        nonlocal left
        left -= 1
        if not left:
            _mark_unflushed(responses, waits)
            then()

    for wait in waits.values():
        wait.on_done(one_is_over)


def _mark_unflushed(
    responses: list[TopicResponse], waits: Mapping[TopicPartition, Pending[None]]
) -> None:
    for topic in responses:
        for number, one in enumerate(topic.partition_responses):
            wait = waits.get(TopicPartition(topic.name, one.index))
            if not one.error_code and wait is not None and isinstance(wait.error, KafkaError):
                topic.partition_responses[number] = failed(one.index, wait.error)
