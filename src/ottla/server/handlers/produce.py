"""Produce: append a client's batches to the logs of partitions that this broker leads.

A batch that would hold the loop is checked by a worker (`server/requests/decompression.py`) and
appended afterwards; partition, leader and producer are checked then. The response waits for all.

Kafka: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords. Hot path:
benchmarks/against_kafka.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.coordinator.runtime.log import TransactionSupport
from ottla.coordinator.transaction.decisions import ProducerKey
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.produce import ProduceRequest
from ottla.protocol.produce_values import read_produce, write_produce
from ottla.purgatory.pending import Pending, Steps
from ottla.purgatory.work import NEXT_TURN
from ottla.records.batch import (
    COMPRESSION_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
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
    FLAGS_POSITION,
    accepted,
    fail_request,
    failed,
    may_produce,
    refused,
    when_safe,
    without_repeats,
)
from ottla.server.requests.api import Form, handles
from ottla.server.requests.parts import PARTITIONS_IN_A_TURN
from ottla.storage.producers.append import TransactionAppend, Verification
from ottla.types import Uuid

if TYPE_CHECKING:
    from ottla.protocol.produce_values import PartitionAnswer, PartitionRecords, ProduceValues
    from ottla.purgatory.work import Work
    from ottla.records.validation_rules import CheckedBatch
    from ottla.replication.leader_state import LeaderState
    from ottla.replication.partition import Partition
    from ottla.server.handlers.produce_answers import Awaited
    from ottla.server.requests.context import Context
    from ottla.types import TopicPartition

log = logging.getLogger("ottla.produce")
ADMIN_CLIENT_ID = "__admin_client"
_ZSTD_FROM: Final = 7
_ABORTABLE_FROM: Final = 11
_ADDS_PARTITIONS_FROM: Final = 12
_MAGIC: Final = 2
_ZSTD: Final = int(Compression.ZSTD)
_NO_ID: Final = Uuid(bytes(16))
_UNANSWERED: Final = 0
"""The code in the answers of appends that are still to be made."""


class _Later:
    """An append whose batch is checked first.

    A worker checks large batches, the transaction's coordinator its first batch in a partition.
    """

    __slots__ = ("check", "part", "partition", "transaction")

    def __init__(
        self,
        part: PartitionRecords,
        partition: Partition,
        check: Pending[Verification] | Pending[CheckedBatch],
        transaction: TransactionAppend | None = None,
    ) -> None:
        self.part = part
        self.partition = partition
        self.check = check
        self.transaction = transaction
        """What was verified before a worker checks the batch."""


_Appends: TypeAlias = "tuple[list[PartitionAnswer], dict[int, _Later], list[Awaited]]"
"""The answers, the appends to be made later and those that replicas acknowledge; by position."""


class _Replicating:
    """The answer for an append that other replicas acknowledge first."""

    __slots__ = ("answer", "leading", "required_offset")

    def __init__(self, answer: PartitionAnswer, leading: LeaderState, required_offset: int) -> None:
        self.answer = answer
        self.leading = leading
        self.required_offset = required_offset


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
    verified: dict[int, TransactionAppend] = {}
    is_large = len(partitions) > PARTITIONS_IN_A_TURN
    if not is_usual:
        _refuse_request(request)
        if not is_large:
            verified = _verified_at_once(ctx, request, partitions)
    appends: _Appends = [], {}, []
    if is_large:
        work = _append_in_turns(ctx, request, partitions, appends, is_usual=is_usual)
        return ctx.broker.worker.run(work)
    _append_all(ctx, request, partitions, appends, verified, is_usual=is_usual)
    return _answer(ctx, request, *appends)


def _append_in_turns(
    ctx: Context,
    request: ProduceValues,
    partitions: list[PartitionRecords],
    appends: _Appends,
    *,
    is_usual: bool,
) -> Work[list[PartitionAnswer] | None]:
    for begin in range(0, len(partitions), PARTITIONS_IN_A_TURN):
        parts = partitions[begin : begin + PARTITIONS_IN_A_TURN]
        append = partial(_append_all, ctx, request, parts, appends, {}, is_usual=is_usual)
        if ctx.quota_use is None:
            append()
        else:
            ctx.quota_use.measured(append)
        yield NEXT_TURN
    if request.transactional_id:
        yield from _append_verified_in_turns(ctx, request, *appends)
    answer = _answer(ctx, request, *appends)
    del partitions, parts, append  # their views keep the frame, for as long as replicas take
    return (yield answer) if isinstance(answer, Pending) else answer


def _append_verified_in_turns(
    ctx: Context,
    request: ProduceValues,
    answers: list[PartitionAnswer],
    later: dict[int, _Later],
    awaited: list[Awaited],
) -> Work[None]:
    """Append what the coordinator knows: it answers about all partitions in one turn."""
    ctx.broker.verification.send()
    while later:
        some = dict(islice(later.items(), PARTITIONS_IN_A_TURN))
        for position, append in some.items():
            del later[position]
            if not append.check.done:
                with suppress(Exception):  # its partition is answered with it
                    yield append.check
        append_now = partial(_append_checked_now, ctx, request, answers, some, awaited)
        later |= append_now() if ctx.quota_use is None else ctx.quota_use.measured(append_now)
        yield NEXT_TURN


def _append_all(
    ctx: Context,
    request: ProduceValues,
    partitions: list[PartitionRecords],
    appends: _Appends,
    verified: dict[int, TransactionAppend],
    *,
    is_usual: bool,
) -> None:
    """Append the records of partitions, and note each answer, or what it waits for."""
    answers, later, awaited = appends
    for part in partitions:
        if is_usual:
            result = _append(ctx, request, part)
        else:
            transaction = verified.get(len(answers))
            result = _append(ctx, request, part, transaction, is_usual=transaction is not None)
        if isinstance(result, tuple):
            answers.append(result)
        elif isinstance(result, _Replicating):
            awaited.append((len(answers), result.leading, result.required_offset))
            answers.append(result.answer)
        else:
            later[len(answers)] = result
            answers.append(refused(part, _UNANSWERED))


def _answer(
    ctx: Context,
    request: ProduceValues,
    answers: list[PartitionAnswer],
    later: dict[int, _Later],
    awaited: list[Awaited],
) -> list[PartitionAnswer] | Pending[list[PartitionAnswer] | None] | None:
    """Answer now, or when what is checked later is appended and replicas have the records."""
    if later:
        ctx.broker.verification.send()
        later = _append_checked_now(ctx, request, answers, later, awaited)
    if later or awaited or ctx.broker.replicas.overdue_flushes:
        return _when_over(ctx, request, answers, later, awaited)
    return answers if request.acks else _unacknowledged(ctx, answers)


def _append(
    ctx: Context,
    request: ProduceValues,
    part: PartitionRecords,
    transaction: TransactionAppend | None = None,
    *,
    is_usual: bool = True,
) -> PartitionAnswer | _Replicating | _Later:
    """Append one partition's records; without `is_usual` they are checked in Kafka's order first.

    A partition of an internal topic is never usual.
    """
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
                    return _Later(part, partition, guard)
        info, leading = replicas.append(
            partition,
            records,  # type: ignore[arg-type] # checked above
            request.acks,
            ctx.now_ms,
            transaction=transaction,
        )
    except KafkaError as error:
        _log_refusal(ctx, part, error)
        return failed(ctx, part, error, partition)
    except OffloadRequired as large:
        assert partition is not None
        return _Later(part, partition, _checked(ctx, large), transaction)
    answer = accepted(part, info)
    return answer if leading is None else _Replicating(answer, leading, info.last_offset + 1)


def _verified_at_once(
    ctx: Context, request: ProduceValues, partitions: list[PartitionRecords]
) -> dict[int, TransactionAppend]:
    """Return how the batches of a usual transaction are appended, by position in the request.

    A usual one has version 2 (KIP-890), one producer, whole batches, and partitions led here whose
    log knows the transaction or whose coordinator, on this broker, adds them at once. Empty for all
    other requests: `_append` checks and verifies each partition.
    """
    name, acks = request.transactional_id, request.acks
    if not name or ctx.api_version < _ADDS_PARTITIONS_FROM or not -1 <= acks <= 1:
        return {}
    replicas, producer = ctx.broker.replicas, None
    added: list[TopicPartition] = []
    verified: dict[int, TransactionAppend] = {}
    for position, (topic, index, records) in enumerate(partitions):
        key = (topic, _NO_ID, index) if isinstance(topic, str) else ("", topic, index)
        partition = replicas.find_key(key)
        if (
            records is None
            or len(records) <= HEADER_BYTES
            or partition is None
            or partition.is_internal
            or not partition.log.is_ready
        ):
            return {}
        _, size, _, magic, _, flags, _, _, _, producer_id, epoch, sequence, _ = HEADER.unpack_from(
            records
        )
        if (
            size != len(records) - LOG_OVERHEAD_BYTES
            or magic != _MAGIC
            or not flags & TRANSACTIONAL_FLAG
            or producer_id < 0
            or producer not in (None, (producer_id, epoch))
        ):
            return {}
        producer = ProducerKey(producer_id, epoch)
        try:
            partition.check_writable(acks)
            guard = partition.log.producer_state.start_verification(
                producer_id, sequence, epoch, now_ms=ctx.now_ms, supports_epoch_bump=True
            )
        except KafkaError:
            return {}
        if guard is not None:
            added.append(partition.topic_partition)
        verified[position] = TransactionAppend(guard)
    if added and producer is not None:
        is_added = ctx.broker.verification.add_at_once(name, producer, added)
        return verified if is_added else {}
    return verified


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
    if any(code for _, _, code, *_ in answers):
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
    if len(records) <= FLAGS_POSITION or records[MAGIC_POSITION] != _MAGIC:
        return 0
    return records[FLAGS_POSITION]


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
    later: dict[int, _Later],
    awaited: list[Awaited],
) -> dict[int, _Later]:
    """Append what is already checked, as by a coordinator on this broker; return the others."""
    unchecked = {}
    for position, append in later.items():
        if not append.check.done:
            unchecked[position] = append
            continue
        try:
            awaited += _append_checked(ctx, request, answers, position, append)
        except OffloadRequired as large:
            unchecked[position] = _checked_again(ctx, append, large)
    return unchecked


def _checked_again(ctx: Context, append: _Later, large: OffloadRequired) -> _Later:
    """Give a large batch of a verified transaction to a worker."""
    transaction = TransactionAppend(append.check.value)  # type: ignore[arg-type] # of a verification
    return _Later(append.part, append.partition, _checked(ctx, large), transaction)


def _when_over(
    ctx: Context,
    request: ProduceValues,
    answers: list[PartitionAnswer],
    later: dict[int, _Later],
    awaited: list[Awaited],
) -> Pending[list[PartitionAnswer] | None]:
    """Answer when all steps of all partitions are complete: check, append, replication, flush."""
    steps = Steps(lambda: answers if request.acks else _unacknowledged(ctx, answers))

    def checked(position: int, append: _Later) -> None:
        try:
            awaited = _append_checked(ctx, request, answers, position, append)
        except OffloadRequired as large:
            wait(position, _checked_again(ctx, append, large))
        else:
            steps.add(when_safe(ctx, request, answers, awaited))

    def wait(position: int, append: _Later) -> None:
        append.check.on_done(lambda _done: checked(position, append))
        steps.add(append.check)

    steps.add(when_safe(ctx, request, answers, awaited))
    for position, append in later.items():
        wait(position, append)
    if not later:  # a wait for other replicas keeps no frame: what it holds is in the log
        request.partitions[:] = [(topic, index, None) for topic, index, _ in request.partitions]
    return steps.begin()


def _append_checked(
    ctx: Context,
    request: ProduceValues,
    answers: list[PartitionAnswer],
    position: int,
    append: _Later,
) -> list[Awaited]:
    """Append what was checked, unless the partition was replaced meanwhile.

    Return what acknowledges it. Raises OffloadRequired for a large batch of a transaction, which
    a worker checks after the coordinator.
    """
    part, partition, transaction = append.part, append.partition, append.transaction
    records: Any = part[2]
    replicas = ctx.broker.replicas
    try:
        if replicas.find(*partition.topic_partition) is not partition:
            raise _not_held(ctx, part)
        checked: Any = append.check.value
        if type(checked) is Verification:
            transaction = TransactionAppend(checked)
        else:
            records = checked
        info, leading = replicas.append(
            partition, records, request.acks, ctx.broker.clock.now_ms(), transaction=transaction
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
    answers[position] = accepted(part, info)
    return [] if leading is None else [(position, leading, info.last_offset + 1)]


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
