"""Produce: append a client's batches to the logs of partitions that this broker leads.

A batch that would hold the loop goes to a worker (`server/unfolding.py`) and comes back checked;
partition, leader and producer are looked at when it is appended. The answer waits for all.

Kafka: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords. Hot path:
benchmarks/against_kafka.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.produce import ProduceRequest, ProduceResponse
from ottla.purgatory.pending import Pending
from ottla.records.validation_rules import RecordValidationError, TooMuchForTheLoop
from ottla.records.validator import AppendOrigin, UnreadableRecords
from ottla.server.dispatch import handles
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.records.validation_rules import CheckedBatch
    from ottla.replication.partition import Partition
    from ottla.server.context import Context
    from ottla.storage.append_info import AppendInfo

    TopicData = ProduceRequest.TopicProduceData
    PartitionData = TopicData.PartitionProduceData

TopicResponse = ProduceResponse.TopicProduceResponse
PartitionResponse = TopicResponse.PartitionProduceResponse
log = logging.getLogger("ottla.produce")
ADMIN_CLIENT_ID = "__admin_client"
_TOPIC_IDS_FROM = 13
_ZSTD_FROM = 7
_MAGIC_POSITION, _FLAGS_POSITION = 16, 22  # in a batch; the low byte of its attributes
_CODEC, _ZSTD, _TRANSACTIONAL = 0x07, 4, 0x10
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


class _Later(NamedTuple):
    """A partition whose batch a worker checks, and its place in the answer."""

    partition: Partition
    missing: ErrorCode
    checked: Pending[CheckedBatch]
    responses: list[PartitionResponse]
    position: int


@handles(ProduceRequest)
def produce(
    ctx: Context, request: ProduceRequest
) -> ProduceResponse | Pending[ProduceResponse | None] | None:
    """Append each partition's records; with one in-sync replica they are committed at once.

    The answer waits for a flush only where a log has reached flush.messages.
    """
    refused = _refused_whole(request)
    later: list[_Later] = []
    if refused is None:
        responses = [_append_topic(ctx, request, topic, later) for topic in request.topic_data]
    else:
        responses = [_refuse_topic(ctx, topic, refused) for topic in request.topic_data]
    if later:
        return _when_checked(ctx, request, responses, later)
    if ctx.broker.replicas.overdue_flushes:
        return _when_flushed(ctx, request, responses)
    return _answer(ctx, request, responses)


def _answer(
    ctx: Context, request: ProduceRequest, responses: list[TopicResponse]
) -> ProduceResponse | None:
    if request.acks == 0:
        _close_when_failed(ctx, responses)
        return None
    return ProduceResponse(responses=responses)


def _when_flushed(
    ctx: Context, request: ProduceRequest, responses: list[TopicResponse]
) -> Pending[ProduceResponse | None]:
    """Answer when all logs of the request are flushed that have to be; what failed is told so."""
    answer: Pending[ProduceResponse | None] = Pending()
    _after_flushes(ctx, responses, lambda: answer.complete(_answer(ctx, request, responses)))
    return answer


def _after_flushes(
    ctx: Context, responses: list[TopicResponse], then: Callable[[], object]
) -> None:
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
                topic.partition_responses[number] = _failed(one.index, wait.error)


def _refused_whole(request: ProduceRequest) -> ErrorCode | None:
    if not -1 <= request.acks <= 1:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if request.transactional_id is not None:
        return ErrorCode.INVALID_TXN_STATE  # no transaction can have begun: part 4 brings them
    for topic in request.topic_data:
        for data in topic.partition_data:
            if _flags(data) & _TRANSACTIONAL:  # nobody would ever end it
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _flags(data: PartitionData) -> int:
    """Return codec and flags of the first batch, 0 for bytes that are none."""
    records: Any = data.records
    if records and len(records) > _FLAGS_POSITION and records[_MAGIC_POSITION] == 2:
        return int(records[_FLAGS_POSITION])
    return 0


def _refuse_topic(ctx: Context, topic: TopicData, code: ErrorCode) -> TopicResponse:
    """Refuse what is there; of what is not, that it is missing weighs more."""
    name, missing = _topic_name(ctx, topic)
    find = ctx.broker.replicas.find
    return TopicResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[
            _failed(one.index, KafkaError(missing if find(name, one.index) is None else code))
            for one in topic.partition_data
        ],
    )


def _close_when_failed(ctx: Context, responses: list[TopicResponse]) -> None:
    """With acks=0 there is no answer to carry an error: the closed connection tells it."""
    if any(p.error_code for topic in responses for p in topic.partition_responses):
        ctx.connection.close()


def _when_checked(
    ctx: Context, request: ProduceRequest, responses: list[TopicResponse], later: list[_Later]
) -> Pending[ProduceResponse | None]:
    """Answer once the last of the batches came back from the workers and was appended."""
    answer: Pending[ProduceResponse | None] = Pending()
    left = len(later) + 1  # the appends that were done at once are one

    def part_is_over() -> None:
        nonlocal left
        left -= 1
        if not left:
            answer.complete(_answer(ctx, request, responses))

    def append(one: _Later) -> None:
        one.responses[one.position] = _append_checked(ctx, request, one)
        _after_flushes(ctx, responses, part_is_over)

    _after_flushes(ctx, responses, part_is_over)
    for one in later:
        one.checked.on_done(lambda _done, one=one: append(one))  # type: ignore[misc] # a lambda's default binds the loop's value
    return answer


def _append_checked(ctx: Context, request: ProduceRequest, one: _Later) -> PartitionResponse:
    """Append what a worker found good, unless the partition is another one by now."""
    partition, replicas = one.partition, ctx.broker.replicas
    name, index = partition.topic_partition
    try:
        if replicas.find(name, index) is not partition:
            return _failed(index, _not_held(ctx, name, index, one.missing))
        info = replicas.append(
            partition,
            one.checked.value,
            required_acks=request.acks,
            now_ms=ctx.broker.clock.now_ms(),
            origin=AppendOrigin.CLIENT,
        )
    except KafkaError as error:
        _log_refusal(ctx, name, index, error)
        return _failed(index, error, partition)
    except Exception as error:
        extra = {"event": "request.failed", "client": ctx.client}
        log.exception("append failed", exc_info=error, extra=extra)
        return _failed(index, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR), partition)
    return _appended(index, info)


def _append_topic(
    ctx: Context, request: ProduceRequest, topic: TopicData, later: list[_Later]
) -> TopicResponse:
    name, missing = _topic_name(ctx, topic)
    responses: list[PartitionResponse] = []
    for data in topic.partition_data:
        try:
            response = _append_partition(ctx, request, name, data, missing)
        except TooMuchForTheLoop as large:
            response = PartitionResponse(
                index=data.index, base_offset=-1
            )  # stands there until it is known
            partition = ctx.broker.replicas.get(name, data.index)
            partition.append_count -= 1  # it counts when it comes back
            checked = ctx.broker.unfolding.check(large, now_ms=ctx.now_ms, client=ctx.client)
            later.append(_Later(partition, missing, checked, responses, len(responses)))
        responses.append(response)
    return TopicResponse(name=name, topic_id=topic.topic_id, partition_responses=responses)


def _topic_name(ctx: Context, topic: TopicData) -> tuple[str, ErrorCode]:
    """Return the topic's name and the error for a partition of it that is not found."""
    if ctx.api_version < _TOPIC_IDS_FROM:
        return topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    name = ctx.broker.topic_name(topic.topic_id)
    if name is None:
        return "", ErrorCode.UNKNOWN_TOPIC_ID
    return name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _append_partition(
    ctx: Context,
    request: ProduceRequest,
    topic: str,
    data: PartitionData,
    missing: ErrorCode,
) -> PartitionResponse:
    replicas = ctx.broker.replicas
    partition = replicas.find(topic, data.index)
    try:
        if partition is None:
            raise _not_held(ctx, topic, data.index, missing)
        if partition.is_internal and ctx.client_id != ADMIN_CLIENT_ID:
            raise _internal(topic)
        records = data.records
        if not records:
            raise UnreadableRecords(ErrorCode.INVALID_RECORD)
        if ctx.api_version < _ZSTD_FROM and _flags(data) & _CODEC == _ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        info = replicas.append(
            partition,
            records,  # type: ignore[arg-type] # decoded requests hold a view of the frame
            required_acks=request.acks,
            now_ms=ctx.now_ms,
            origin=AppendOrigin.CLIENT,
        )
    except KafkaError as error:
        _log_refusal(ctx, topic, data.index, error)
        return _failed(data.index, error, partition)
    return _appended(data.index, info)


def _appended(index: int, info: AppendInfo) -> PartitionResponse:
    return PartitionResponse(
        index=index,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )


def _not_held(ctx: Context, topic: str, index: int, missing: ErrorCode) -> KafkaError:
    is_broken = ctx.broker.replicas.why_missing(topic, index) is ErrorCode.KAFKA_STORAGE_ERROR
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR if is_broken else missing)


def _internal(topic: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")


def _log_refusal(ctx: Context, topic: str, index: int, error: KafkaError) -> None:
    extra = {"event": "produce.refused", "client": ctx.client, "client_id": ctx.client_id}
    log.info("refused for %s-%d: %s", topic, index, error, extra=extra)


def _failed(index: int, error: KafkaError, partition: Partition | None = None) -> PartitionResponse:
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
