"""Produce: append a client's batches to the logs of partitions that this broker leads.

A batch that would hold the loop is checked by a worker
(`server/requests/decompression.py`) and appended afterwards;
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
from ottla.records.validation_rules import OffloadRequired
from ottla.records.validator import AppendOrigin, UnreadableRecords
from ottla.server.handlers.produce_answers import (
    PartitionResponse,
    TopicResponse,
    after_flushes,
    appended,
    failed,
)
from ottla.server.requests.dispatch import handles

if TYPE_CHECKING:
    from ottla.records.validation_rules import CheckedBatch
    from ottla.replication.partition import Partition
    from ottla.server.requests.context import Context
    from ottla.types import Uuid

    TopicData = ProduceRequest.TopicProduceData
    PartitionData = TopicData.PartitionProduceData

log = logging.getLogger("ottla.produce")
ADMIN_CLIENT_ID = "__admin_client"
_TOPIC_IDS_FROM = 13
_ZSTD_FROM = 7
_MAGIC_POSITION, _FLAGS_POSITION = 16, 22  # in a batch; the low byte of its attributes
_CODEC, _ZSTD, _TRANSACTIONAL = 0x07, 4, 0x10


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
    request.topic_data = _without_repeats(request.topic_data)
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


def _without_repeats(topics: list[TopicData]) -> list[TopicData]:
    """Keep the last of what is sent twice for one partition, where the first stood, as Kafka."""
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return topics
    wanted: dict[tuple[str, Uuid], dict[int, PartitionData]] = {}
    for topic in topics:
        partitions = wanted.setdefault((topic.name, topic.topic_id), {})
        partitions.update((data.index, data) for data in topic.partition_data)
    sent_count = sum(len(topic.partition_data) for topic in topics)
    if len(wanted) == len(topics) and sum(map(len, wanted.values())) == sent_count:
        return topics
    return [
        ProduceRequest.TopicProduceData(
            name=name, topic_id=topic_id, partition_data=list(partitions.values())
        )
        for (name, topic_id), partitions in wanted.items()
    ]


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
    after_flushes(ctx, responses, lambda: answer.complete(_answer(ctx, request, responses)))
    return answer


def _refused_whole(request: ProduceRequest) -> ErrorCode | None:
    if not -1 <= request.acks <= 1:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if request.transactional_id is not None:
        return ErrorCode.INVALID_TXN_STATE  # transactions are not implemented
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
            failed(one.index, KafkaError(missing if find(name, one.index) is None else code))
            for one in topic.partition_data
        ],
    )


def _close_when_failed(ctx: Context, responses: list[TopicResponse]) -> None:
    """With acks=0 there is no answer to carry an error: the closed connection tells it."""
    if any(p.error_code for topic in responses for p in topic.partition_responses):
        ctx.connection.finish()


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
        after_flushes(ctx, responses, part_is_over)

    after_flushes(ctx, responses, part_is_over)
    for one in later:
        one.checked.on_done(lambda _done, one=one: append(one))  # type: ignore[misc] # a lambda's default binds the loop's value
    return answer


def _append_checked(ctx: Context, request: ProduceRequest, one: _Later) -> PartitionResponse:
    """Append what a worker found good, unless the partition is another one by now."""
    partition, replicas = one.partition, ctx.broker.replicas
    name, index = partition.topic_partition
    try:
        if replicas.find(name, index) is not partition:
            return failed(index, _not_held(ctx, name, index, one.missing))
        info = replicas.append(
            partition,
            one.checked.value,
            required_acks=request.acks,
            now_ms=ctx.broker.clock.now_ms(),
            origin=AppendOrigin.CLIENT,
        )
    except KafkaError as error:
        _log_refusal(ctx, name, index, error)
        return failed(index, error, partition)
    except Exception as error:
        extra = {"event": "request.failed", "client": ctx.client}
        log.exception("append failed", exc_info=error, extra=extra)
        return failed(index, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR), partition)
    return appended(index, info)


def _append_topic(
    ctx: Context, request: ProduceRequest, topic: TopicData, later: list[_Later]
) -> TopicResponse:
    name, missing = _topic_name(ctx, topic)
    responses: list[PartitionResponse] = []
    for data in topic.partition_data:
        try:
            response = _append_partition(ctx, request, name, data, missing)
        except OffloadRequired as large:
            # stands there until it is known
            response = PartitionResponse(index=data.index, base_offset=-1)
            partition = ctx.broker.replicas.get(name, data.index)
            partition.append_count -= 1  # it counts when it comes back
            checked = ctx.broker.decompression.check(large, now_ms=ctx.now_ms, client=ctx.client)
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
        return failed(data.index, error, partition)
    return appended(data.index, info)


def _not_held(ctx: Context, topic: str, index: int, missing: ErrorCode) -> KafkaError:
    is_broken = ctx.broker.replicas.why_missing(topic, index) is ErrorCode.KAFKA_STORAGE_ERROR
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR if is_broken else missing)


def _internal(topic: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")


def _log_refusal(ctx: Context, topic: str, index: int, error: KafkaError) -> None:
    extra = {"event": "produce.refused", "client": ctx.client, "client_id": ctx.client_id}
    log.info("refused for %s-%d: %s", topic, index, error, extra=extra)
