"""What a produce request is answered for one partition, and when: not before a flush that is due.

Kafka: KafkaApis.handleProduceRequest, ProduceResponse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch_errors import UnreadableRecords
from ottla.records.validation_rules import RecordValidationError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.produce_values import PartitionAnswer, PartitionRecords, ProduceValues
    from ottla.purgatory.pending import Pending
    from ottla.replication.partition import Partition
    from ottla.server.requests.context import Context
    from ottla.types import Uuid

# Kafka answers the log's start with all other errors of an append
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


def failed(
    part: PartitionRecords, error: KafkaError, partition: Partition | None = None
) -> PartitionAnswer:
    """Return the answer for a refusal; as in Kafka only few of them carry a message."""
    log_start_offset = -1
    message: str | None = None
    record_errors: list[tuple[int, str | None]] = []
    if isinstance(error, RecordValidationError):
        message = error.message
        record_errors = [*error.record_errors]
    if isinstance(error, UnreadableRecords):
        if error.message != error.code.text:
            message = error.message
    elif partition is not None and error.code not in _WITHOUT_LOG_START:
        partition.failed_append_count += 1  # Kafka leaves out what clients must expect
        log_start_offset = partition.log.log_start_offset
    code = int(error.code)
    topic, index, _ = part
    return topic, index, code, -1, -1, log_start_offset, record_errors, message


def fail_request(request: ProduceValues, error: KafkaError) -> list[PartitionAnswer] | None:
    """Return the answer for a request that failed as a whole; None without acknowledgement."""
    if request.acks == 0:
        return None
    message = error.message if error.message != error.code.text else None
    return [
        (topic, index, int(error.code), -1, -1, -1, (), message)
        for topic, index, _ in without_repeats(request.partitions)
    ]


def without_repeats(partitions: list[PartitionRecords]) -> list[PartitionRecords]:
    """Keep the last of what is sent twice for one partition, where the first stood, as Kafka.

    Partitions of one topic are answered together, wherever they stood.
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


def after_flushes(ctx: Context, answers: list[PartitionAnswer], then: Callable[[], object]) -> None:
    """Continue once the logs that were just appended to are flushed, where they have to be."""
    replicas = ctx.broker.replicas
    if not replicas.overdue_flushes:
        then()
        return
    waits: dict[TopicPartition, Pending[Any]] = dict(replicas.logs.flushes.wait_for_overdue())
    remaining = len(waits)

    def one_is_over(_wait: Pending[None]) -> None:
        nonlocal remaining
        remaining -= 1
        if not remaining:
            _mark_unflushed(ctx, answers, waits)
            then()

    for wait in waits.values():
        wait.on_done(one_is_over)


def _mark_unflushed(
    ctx: Context, answers: list[PartitionAnswer], waits: dict[TopicPartition, Pending[Any]]
) -> None:
    """Answer with the error of the flush where a flush has failed."""
    for number, (topic, index, error_code, *_) in enumerate(answers):
        name = topic if isinstance(topic, str) else ctx.broker.topic_name(topic)
        wait = waits.get(TopicPartition(name or "", index))
        if not error_code and wait is not None and isinstance(wait.error, KafkaError):
            code = int(wait.error.code)
            answers[number] = (topic, index, code, -1, -1, -1, (), None)
