"""Produce: append a client's batches to the logs of partitions that this broker leads.

A batch that would hold the loop is checked by a worker (`server/requests/decompression.py`) and
appended afterwards; partition, leader and producer are checked then. The response waits for all.

Kafka: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords. Hot path:
benchmarks/against_kafka.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.coordinator.runtime.log import TransactionSupport
from ottla.coordinator.transaction.decisions import ProducerKey
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.produce import ProduceRequest
from ottla.protocol.produce_values import read_produce, write_produce
from ottla.purgatory.pending import Pending, Steps
from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    MAGIC_POSITION,
    TRANSACTIONAL_FLAG,
    RecordBatch,
    claimed_bytes,
)
from ottla.records.batch_errors import UnreadableRecords, clients_batch_size
from ottla.records.compression import Compression
from ottla.records.validation_rules import OffloadRequired
from ottla.records.validator import is_single_batch
from ottla.server.handlers.produce_answers import (
    fail_request,
    failed,
    may_produce,
    when_safe,
    without_repeats,
)
from ottla.server.requests.api import Form, handles
from ottla.storage.producers.append import TransactionAppend, Verification

if TYPE_CHECKING:
    from ottla.protocol.produce_values import PartitionAnswer, PartitionRecords, ProduceValues
    from ottla.records.validation_rules import CheckedBatch
    from ottla.replication.partition import Partition
    from ottla.server.handlers.produce_answers import Awaited
    from ottla.server.requests.context import Context

log = logging.getLogger("ottla.produce")
ADMIN_CLIENT_ID = "__admin_client"
_ZSTD_FROM: Final = 7
_FLAGS_POSITION: Final = ATTRIBUTES_POSITION + 1  # the low byte of the attributes
_ABORTABLE_FROM: Final = 11
_ADDS_PARTITIONS_FROM: Final = 12
_MAGIC: Final = 2
_ZSTD: Final = int(Compression.ZSTD)


class _Later(NamedTuple):
    """A partition whose batch is checked first, with its position in the request.

    A worker checks large batches, the transaction's coordinator its first batch in a partition.
    """

    position: int
    part: PartitionRecords
    partition: Partition
    check: Pending[Verification] | Pending[CheckedBatch]
    transaction: TransactionAppend | None = None
    """What was verified before a worker checks the batch."""


@handles(
    ProduceRequest,
    right=may_produce,
    form=Form(read_produce, write_produce, fail_request),
    notes={
        5: "log start offsets",
        7: "zstd",
        8: "errors of single records",
        10: "leaders of partitions that moved (KIP-951)",
        11: "transactions of partitions not added are refused (KIP-890)",
        12: "adds partitions to the transaction (KIP-890)",
        13: "topic ids (KIP-516)",
    },
)
def produce(
    ctx: Context, request: ProduceValues
) -> list[PartitionAnswer] | Pending[list[PartitionAnswer] | None] | None:
    """Append each partition's records; without other replicas they are committed at once.

    The response waits for other replicas with acks=all, and for a flush only where a log has
    reached flush.messages.
    """
    partitions, acks = request.partitions, request.acks
    if len(partitions) > 1:
        partitions = without_repeats(partitions)
    is_usual = ctx.api_version >= _ZSTD_FROM and -1 <= acks <= 1
    for _, _, records in request.partitions:  # also of what is repeated
        if records is None or not is_single_batch(records):
            is_usual = False
    if not is_usual:
        _refuse_request(request)
    later: list[_Later] = []
    awaited: list[Awaited] = []
    answers: list[PartitionAnswer] = []
    for part in partitions:
        answers.append(_append(ctx, request, part, later, awaited, len(answers), is_usual))
    if later:
        ctx.broker.verification.send()
        later = _append_checked_now(ctx, request, answers, later, awaited)
    if later or awaited or ctx.broker.replicas.overdue_flushes:
        return _when_over(ctx, request, answers, later, awaited)
    return answers if acks else _unacknowledged(ctx, answers)


def _append(
    ctx: Context,
    request: ProduceValues,
    part: PartitionRecords,
    later: list[_Later],
    awaited: list[Awaited],
    position: int,
    is_usual: bool,  # noqa: FBT001 - on the hot path
) -> PartitionAnswer:
    """Append one partition's records; add unfinished steps to `later` or `awaited`."""
    topic, index, records = part
    replicas = ctx.broker.replicas
    if type(topic) is str:
        partition = replicas.find(topic, index)
    else:
        held = replicas.by_topic_id.get(topic)  # type: ignore[arg-type] # an id
        partition = held.get(index) if held else None
    try:
        if partition is None:
            raise _refusal_elsewhere(ctx, request, part)
        if not is_usual or partition.is_internal:
            name = partition.topic_partition.topic
            _check_unusual(ctx, request, name, records, is_internal=partition.is_internal)
            if _flags(records) & TRANSACTIONAL_FLAG:
                partition.check_writable(request.acks)
                guard = _verified(ctx, request, partition, records)  # type: ignore[arg-type] # not empty
                if guard is not None:
                    later.append(_Later(position, part, partition, guard))
                    return topic, index, 0, -1, -1, -1, (), None, None
        info, leading = replicas.append(partition, records, request.acks, ctx.now_ms)  # type: ignore[arg-type] # checked above
    except KafkaError as error:
        _log_refusal(ctx, part, error)
        return failed(ctx, part, error, partition)
    except OffloadRequired as large:
        assert partition is not None
        later.append(_Later(position, part, partition, _checked(ctx, large)))
        return topic, index, 0, -1, -1, -1, (), None, None
    if leading is not None:
        awaited.append((position, leading, info[1] + 1))
    first_offset, append_time_ms, log_start_offset = info[0], info[3], info[4]
    return topic, index, 0, first_offset, append_time_ms, log_start_offset, (), None, None


def _verified(
    ctx: Context, request: ProduceValues, partition: Partition, records: memoryview
) -> Pending[Verification] | None:
    """Return the guard of a transaction's first batch in a partition (KIP-890); None later.

    A transactional batch without a producer id is appended as it is: it begins no transaction.
    """
    batch = RecordBatch(records)
    if not batch.has_producer_id:
        return None
    support = TransactionSupport.DEFAULT
    if ctx.api_version >= _ADDS_PARTITIONS_FROM:
        support = TransactionSupport.ADDS_PARTITIONS
    elif ctx.api_version >= _ABORTABLE_FROM:
        support = TransactionSupport.ABORTABLE
    return ctx.broker.verification.begin(
        partition,
        request.transactional_id or "",
        ProducerKey(batch.producer_id, batch.producer_epoch),
        batch.base_sequence,
        support,
    )


def _checked(ctx: Context, large: OffloadRequired) -> Pending[CheckedBatch]:
    """Return a large batch once a worker has checked it."""
    return ctx.broker.decompression.check(large, now_ms=ctx.now_ms, client=ctx.client)


def _unacknowledged(ctx: Context, answers: list[PartitionAnswer]) -> list[PartitionAnswer] | None:
    """Return no response: an error of acks=0 is reported by closing the connection."""
    if any(error_code for _, _, error_code, *_ in answers):
        ctx.connection.finish()
    return None


def _refuse_request(request: ProduceValues) -> None:
    """Raise the errors for which Kafka refuses the whole request, before it handles a partition.

    These are an unreadable first batch, and a transactional one without a transactional id.
    """
    for _, _, records in request.partitions:
        if _flags(records) & TRANSACTIONAL_FLAG and request.transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _flags(records: memoryview | None) -> int:
    """Return the low attributes of the first batch, if it is complete.

    CorruptMessage when it is none.
    """
    if records is None or claimed_bytes(records, 0) > len(records):
        return 0
    if len(records) <= _FLAGS_POSITION or records[MAGIC_POSITION] != _MAGIC:
        return 0
    return records[_FLAGS_POSITION]


def _check_unusual(
    ctx: Context,
    request: ProduceValues,
    topic: str,
    records: memoryview | None,
    *,
    is_internal: bool,
) -> None:
    """Check, in Kafka's order, what the fast path of a usual request has excluded."""
    if not records:
        raise UnreadableRecords(ErrorCode.INVALID_RECORD)
    flags = _flags(records)
    if ctx.api_version < _ZSTD_FROM and flags & COMPRESSION_MASK == _ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    clients_batch_size(records)
    if not -1 <= request.acks <= 1:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if is_internal and ctx.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}"
        )


def _append_checked_now(
    ctx: Context,
    request: ProduceValues,
    answers: list[PartitionAnswer],
    later: list[_Later],
    awaited: list[Awaited],
) -> list[_Later]:
    """Append what is already checked, as by a coordinator on this broker; return the others."""
    left = []
    for one in later:
        if not one.check.done:
            left.append(one)
            continue
        try:
            awaited += _append_checked(ctx, request, answers, one)
        except OffloadRequired as large:
            left.append(_checked_again(ctx, one, large))
    return left


def _checked_again(ctx: Context, one: _Later, large: OffloadRequired) -> _Later:
    """Give a large batch of a verified transaction to a worker."""
    transaction = TransactionAppend(one.check.value)  # type: ignore[arg-type] # of a verification
    return one._replace(check=_checked(ctx, large), transaction=transaction)


def _when_over(
    ctx: Context,
    request: ProduceValues,
    answers: list[PartitionAnswer],
    later: list[_Later],
    awaited: list[Awaited],
) -> Pending[list[PartitionAnswer] | None]:
    """Answer when all steps of all partitions are complete: check, append, replication, flush."""
    steps = Steps(lambda: answers if request.acks else _unacknowledged(ctx, answers))

    def append(one: _Later) -> None:
        try:
            awaited = _append_checked(ctx, request, answers, one)
        except OffloadRequired as large:
            wait(_checked_again(ctx, one, large))
        else:
            steps.add(when_safe(ctx, request, answers, awaited))

    def wait(one: _Later) -> None:
        one.check.on_done(lambda _done: append(one))
        steps.add(one.check)

    steps.add(when_safe(ctx, request, answers, awaited))
    for one in later:
        wait(one)
    if not later:  # a wait for other replicas keeps no frame: what it holds is in the log
        request.partitions[:] = [(topic, index, None) for topic, index, _ in request.partitions]
    return steps.begin()


def _append_checked(
    ctx: Context, request: ProduceValues, answers: list[PartitionAnswer], one: _Later
) -> list[Awaited]:
    """Append what was checked, unless the partition was replaced meanwhile.

    Return what acknowledges it. Raises OffloadRequired for a large batch of a transaction, which
    a worker checks after the coordinator.
    """
    position, part, partition, check, transaction = one
    topic, index, records = part
    replicas = ctx.broker.replicas
    try:
        if replicas.find(*partition.topic_partition) is not partition:
            raise _not_held(ctx, part)
        checked: Any = check.value
        if type(checked) is Verification:
            transaction = TransactionAppend(checked)
        else:
            records = checked
        info, leading = replicas.append(
            partition,
            records,  # type: ignore[arg-type] # checked above
            request.acks,
            ctx.broker.clock.now_ms(),
            transaction=transaction,
        )
    except OffloadRequired:
        raise
    except KafkaError as error:
        _log_refusal(ctx, part, error)
        answers[position] = failed(ctx, part, error, partition)
        return []
    except Exception as error:
        extra = {"event": "request.failed", "client": ctx.client}
        log.exception("append failed; report this traceback as a bug", exc_info=error, extra=extra)
        unknown = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        answers[position] = failed(ctx, part, unknown, partition)
        return []
    first_offset, append_time_ms, log_start_offset = info[0], info[3], info[4]
    answers[position] = (
        topic, index, 0, first_offset, append_time_ms, log_start_offset, (), None, None,
    )  # fmt: skip
    return [] if leading is None else [(position, leading, info[1] + 1)]


def _not_held(ctx: Context, part: PartitionRecords) -> KafkaError:
    """Return the error for a partition that this broker does not hold."""
    topic, index, _ = part
    name = topic if isinstance(topic, str) else ctx.broker.topic_name(topic)
    if name is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return KafkaError(ctx.broker.replicas.why_missing(name, index))


def _refusal_elsewhere(ctx: Context, request: ProduceValues, part: PartitionRecords) -> KafkaError:
    """Return the error for a partition that is not here; as in Kafka bad records come first."""
    topic, _, records = part
    error = _not_held(ctx, part)
    name = topic if isinstance(topic, str) else ctx.broker.topic_name(topic)
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and name is not None:
        is_internal = name in ctx.broker.replicas.internal_topics
        _check_unusual(ctx, request, name, records, is_internal=is_internal)
    return error


def _log_refusal(ctx: Context, part: PartitionRecords, error: KafkaError) -> None:
    extra = {"event": "produce.refused", "client": ctx.client, "client_id": ctx.client_id}
    topic, index, _ = part
    name = topic if isinstance(topic, str) else ctx.broker.topic_name(topic) or topic
    reason = error.code.name
    if error.message != error.code.text:  # else Kafka's text of the code, often long
        reason += f": {error.message}"
    log.info("refused for %s-%d: %s", name, index, reason, extra=extra)
