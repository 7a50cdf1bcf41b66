"""The responses to produce requests for each partition, and the waits before them.

A response to acks=all waits until the high watermark covers the records; every response waits for a
flush that is due.

Kafka: KafkaApis.handleProduceRequest, ProduceResponse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending, Steps
from ottla.records.batch import ATTRIBUTES_POSITION, TRANSACTIONAL_FLAG
from ottla.records.batch_errors import UnreadableRecords
from ottla.records.validation_rules import RecordValidationError
from ottla.security.acl import Operation, ResourceType
from ottla.server.broker.transaction_verification import VerificationFailed
from ottla.server.requests.rights import Denied, Reduced, split
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.produce_values import PartitionAnswer, PartitionRecords, ProduceValues
    from ottla.replication.leader_state import LeaderState
    from ottla.replication.partition import Partition
    from ottla.server.requests.context import Context
    from ottla.server.requests.rights import Decision
    from ottla.storage.log.append_info import AppendInfo
    from ottla.types import Node, Uuid

    Awaited: TypeAlias = tuple[int, LeaderState, int]
    """An append with acks=all: position in the request, leader, required high watermark."""

FLAGS_POSITION: Final = ATTRIBUTES_POSITION + 1  # the low byte of the attributes
# Kafka's response to all other errors of an append has the log start offset
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
        ErrorCode.INVALID_REQUIRED_ACKS,
    }
)


def accepted(part: PartitionRecords, info: AppendInfo) -> PartitionAnswer:
    """Return the answer for records that were appended."""
    topic, index, _ = part
    first_offset, _, _, append_time_ms, log_start_offset, _, _, _ = info
    return topic, index, 0, first_offset, append_time_ms, log_start_offset, (), None, None


def refused(
    part: PartitionRecords,
    code: int,
    log_start_offset: int = -1,
    *,
    record_errors: Sequence[tuple[int, str | None]] = (),
    message: str | None = None,
    leader: tuple[int, int, Node | None] | None = None,
) -> PartitionAnswer:
    """Return the answer for records that were not appended, or are not yet."""
    topic, index, _ = part
    return topic, index, code, -1, -1, log_start_offset, record_errors, message, leader


def failed(
    ctx: Context, part: PartitionRecords, error: KafkaError, partition: Partition | None
) -> PartitionAnswer:
    """Return the answer for a refusal; as in Kafka only few of them carry a message."""
    log_start_offset = -1
    message: str | None = None
    record_errors: list[tuple[int, str | None]] = []
    if isinstance(error, RecordValidationError):
        message = error.message
        record_errors = [*error.record_errors]
    if error.code is ErrorCode.KAFKA_STORAGE_ERROR and error.message != error.code.text:
        message = error.message  # the disk reserve, which Kafka does not have
    if isinstance(error, UnreadableRecords | VerificationFailed):
        if error.message != error.code.text:
            message = error.message
    elif partition is not None and error.code not in _WITHOUT_LOG_START:
        partition.failed_append_count += 1  # Kafka does not count errors that clients must expect
        log_start_offset = partition.log.log_start_offset
    topic, index, _ = part
    code, leader = int(error.code), None
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        leader = _leader_elsewhere(ctx, topic, index, partition)
    return refused(
        part, code, log_start_offset, record_errors=record_errors, message=message, leader=leader
    )


def _leader_elsewhere(
    ctx: Context, topic: str | Uuid, index: int, partition: Partition | None
) -> tuple[int, int, Node | None] | None:
    """Return the leader that a client is referred to, with its address (KIP-951)."""
    known = ctx.current_leader(topic, index, partition)
    if known is None:
        return None
    leader = ctx.broker.image.cluster.brokers.get(known[0])
    is_alive = leader is not None and not leader.fenced
    return *known, leader.node(ctx.listener_name) if leader is not None and is_alive else None


def fail_request(
    request: ProduceValues, error: KafkaError, _version: int
) -> list[PartitionAnswer] | None:
    """Return the answer for a request that failed as a whole; None without acknowledgement."""
    if request.acks == 0:
        return None
    message = error.message if error.message != error.code.text else None
    code = int(error.code)
    return [refused(part, code, message=message) for part in without_repeats(request.partitions)]


def without_repeats(partitions: list[PartitionRecords]) -> list[PartitionRecords]:
    """Keep the last records of a partition at the position of its first, as in Kafka.

    The partitions of one topic are answered together, wherever they are in the request.
    """
    requested = {part[:2]: part for part in partitions}
    topics: dict[str | Uuid, list[PartitionRecords]] = {}
    if len(requested) == len(partitions) and not _is_scattered(partitions):
        return partitions
    for part in requested.values():
        topics.setdefault(part[0], []).append(part)
    return [part for parts in topics.values() for part in parts]


def _is_scattered(partitions: list[PartitionRecords]) -> bool:
    """Whether another topic stands between two partitions of one topic."""
    seen: set[str | Uuid] = set()
    last: str | Uuid | None = None
    for part in partitions:
        topic = part[0]
        if topic != last:
            if topic in seen:
                return True
            seen.add(topic)
            last = topic
    return False


class ReplicationWaits(Pending[list["PartitionAnswer"]]):
    """The acknowledgements of all replicas that one request waits for, until its timeout."""

    __slots__ = ("_answers", "_ctx", "_open", "deadline_ms", "is_over")

    def __init__(self, ctx: Context, answers: list[PartitionAnswer], deadline_ms: int) -> None:
        super().__init__()
        self._ctx = ctx
        self._answers = answers
        self._open: dict[int, LeaderState] = {}
        """The leaders that acknowledge, by positions in the request."""
        self.deadline_ms = deadline_ms
        self.is_over = False

    def begin(self, awaited: list[Awaited]) -> None:
        """Wait for partitions of the request."""
        for position, leading, _ in awaited:
            self._open[position] = leading
        for position, leading, required_offset in awaited:
            leading.acknowledge(required_offset, self, position)

    def acknowledged(self, position: int, code: ErrorCode) -> None:
        """Set the result of the partition at this position of the request."""
        leading = self._open.pop(position, None)
        if leading is None:
            return
        if code:
            self._refuse(position, code, leading)
        if not self._open:
            self.is_over = True
            self.complete(self._answers)

    def _refuse(self, position: int, code: ErrorCode, leading: LeaderState) -> None:
        # the records are in the log: as in Kafka the answer says where
        topic, index, _, base_offset, append_time_ms, log_start_offset, *_ = self._answers[position]
        leader = None
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            partition = self._ctx.broker.replicas.find(*leading.partition.topic_partition)
            leader = _leader_elsewhere(self._ctx, topic, index, partition)
        offsets = base_offset, append_time_ms, log_start_offset
        self._answers[position] = topic, index, int(code), *offsets, (), None, leader

    def expire(self) -> None:
        """Answer REQUEST_TIMED_OUT where an acknowledgement is missing."""
        self.is_over = True
        waiting, self._open = self._open, {}
        for position, leading in waiting.items():
            self._refuse(position, ErrorCode.REQUEST_TIMED_OUT, leading)
            leading.acknowledgements.forget_expired()
        self.complete(self._answers)


def when_safe(
    ctx: Context,
    request: ProduceValues,
    answers: list[PartitionAnswer],
    awaited: list[Awaited],
) -> Pending[Any]:
    """Return a Pending of the replication of appends and of the flushes that are due."""
    steps: Steps[None] = Steps(_nothing)
    if awaited:
        broker, timeout_ms = ctx.broker, request.timeout_ms
        waits = ReplicationWaits(ctx, answers, broker.clock.monotonic_ms() + timeout_ms)
        waits.begin(awaited)
        if not waits.is_over:
            broker.expiries.add(timeout_ms, waits)
        if not broker.replicas.overdue_flushes:
            return waits
        steps.add(waits)
    steps.add(_when_flushed(ctx, answers))
    return steps.begin()


def _when_flushed(ctx: Context, answers: list[PartitionAnswer]) -> Pending[None]:
    """Complete when the logs that are due are flushed, with failures in the answers."""
    replicas = ctx.broker.replicas
    if not replicas.overdue_flushes:
        return Pending.of(None)
    waits: dict[TopicPartition, Pending[Any]] = dict(replicas.logs.flushes.wait_for_overdue())
    flushed: Steps[None] = Steps(lambda: _mark_unflushed(ctx, answers, waits))
    for wait in waits.values():
        flushed.add(wait)
    return flushed.begin()


def _nothing() -> None:
    """Return no value: the answers hold the results."""


def _mark_unflushed(
    ctx: Context, answers: list[PartitionAnswer], waits: dict[TopicPartition, Pending[Any]]
) -> None:
    """Set the error of a failed flush in the answer of its partition."""
    for number, (topic, index, error_code, *_) in enumerate(answers):
        name = topic if isinstance(topic, str) else ctx.broker.topic_name(topic)
        wait = waits.get(TopicPartition(name or "", index))
        if not error_code and wait is not None and isinstance(wait.error, KafkaError):
            code = int(wait.error.code)
            answers[number] = refused((topic, index, None), code)


def may_produce(ctx: Context, request: ProduceValues) -> Decision | None:
    """WRITE on the transactional id of transactional batches, and on each topic."""
    if any(_is_transactional(records) for _, _, records in request.partitions):
        name = request.transactional_id
        if name is None or not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            code = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return _denied(ctx, request.acks, _refusals(request.partitions, code))
    allowed, denied = split(request.partitions, lambda part: _may_write(ctx, part[0]))
    if not denied:
        return None
    refusals = _refusals(denied, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    if not allowed:
        return _denied(ctx, request.acks, refusals)

    def finish(answers: list[PartitionAnswer] | None) -> list[PartitionAnswer] | None:
        if answers is None:
            ctx.connection.finish()
            return None
        return [*answers, *refusals]

    return Reduced(request._replace(partitions=allowed), finish)


def _is_transactional(records: memoryview | None) -> bool:
    return bool(
        records is not None
        and len(records) > FLAGS_POSITION
        and records[FLAGS_POSITION] & TRANSACTIONAL_FLAG
    )


def _may_write(ctx: Context, topic: str | Uuid) -> bool:
    name = topic if isinstance(topic, str) else ctx.broker.topic_name(topic)
    return name is None or ctx.authorize(Operation.WRITE, ResourceType.TOPIC, name)


def _refusals(partitions: list[PartitionRecords], code: int) -> list[PartitionAnswer]:
    return [refused(part, code) for part in partitions]


def _denied(ctx: Context, acks: int, refusals: list[PartitionAnswer]) -> Denied:
    if acks == 0:
        ctx.connection.finish()  # the only way to report it
        return Denied(None)
    return Denied(refusals)
