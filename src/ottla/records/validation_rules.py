"""A topic's rules for records, and the errors that a client gets for records that break them.

Kafka: the fields of org.apache.kafka.storage.internals.log.LogValidator, RecordValidationException.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.records.batch import NO_PRODUCER_ID, NO_TIMESTAMP, TimestampType
from ottla.records.compression import DEFAULT_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.records.batch import RecordBatch
    from ottla.records.compression import Compression

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1
_NO_PRODUCER_EPOCH: Final = -1
_SHOWN_ERRORS: Final = 3
_BROKER_TIME: Final = TimestampType.LOG_APPEND_TIME  # an enum's members are found slowly
NO_KEY: Final = "Compacted topic cannot accept message without key in topic partition"


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """A topic's rules for records; created once for each log and configuration."""

    compression_type: Compression | None = None
    """Codec that the log keeps; None is `producer`: whatever the batch has."""
    compression_level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    before_max_ms: int = _MAX_INT64
    after_max_ms: int = 3_600_000
    max_message_bytes: int = 1_048_588
    is_compacted: bool = False
    max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
    """Most bytes that the records of a compressed batch may take."""
    topic_partition: str = ""
    """Named in error messages."""
    checked: tuple[int, bool, int, int, bool, int] = field(init=False, repr=False, compare=False)
    """The rules that `validate` applies to each batch; the codec is -1 for `producer`.

    `records/validator.py` unpacks them, `records/validator.pxd` has their types.
    """

    def __post_init__(self) -> None:
        codec = -1 if self.compression_type is None else int(self.compression_type)
        checked = (
            self.max_message_bytes,
            self.timestamp_type is _BROKER_TIME,
            self.before_max_ms,
            self.after_max_ms,
            self.is_compacted,
            codec,
        )
        object.__setattr__(self, "checked", checked)


class RecordValidationError(KafkaError):
    """Records that break the topic's rules, each with its index in the batch and why."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]
    ) -> None:
        super().__init__(code, message)
        self.record_errors = list(record_errors)


class CheckedBatch(NamedTuple):
    """A client's batch whose records were checked, without offsets."""

    view: memoryview
    """The client's batch, or the one rebuilt from it."""
    largest: int
    """Largest timestamp of its records (ms), -1 for none."""
    is_log_append_time: bool
    """Whether the broker's time counts instead."""


class OffloadRequired(OttlaError):
    """The records of a client's batch must be checked in a worker: they are too many for the loop.

    `large_batches.check_large_batch` takes what is in here, on another thread.
    """

    def __init__(self, view: memoryview, rules: ValidationRules) -> None:
        super().__init__(f"batch of {len(view)} bytes")
        self.view = view
        self.rules = rules


def invalid(message: str | None = None) -> KafkaError:
    """Return INVALID_RECORD, to be raised."""
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def out_of_sequence(rules: ValidationRules) -> KafkaError:
    """Return the error for a compressed batch whose offset deltas are not 0, 1, 2 and so on.

    Kafka fails on it with UNKNOWN_SERVER_ERROR unless it recompresses the batch.
    """
    return invalid(
        "The records of a compressed batch must have consecutive offsets from 0 on "
        f"in topic partition {rules.topic_partition}"
    )


def time_range(now_ms: int, rules: ValidationRules) -> tuple[int, int]:
    """Return the least and the largest timestamp that the topic takes."""
    if rules.timestamp_type is _BROKER_TIME:
        return _MIN_INT64, _MAX_INT64
    earliest = now_ms - rules.before_max_ms
    latest = now_ms + rules.after_max_ms
    return max(earliest, _MIN_INT64), min(latest, _MAX_INT64)


def timestamp_problem(
    record: tuple[int, int, int, int],
    now_ms: int,
    rules: ValidationRules,
    *,
    appended: bool,
    is_partial: bool = False,
) -> str | None:
    """Return why a record is refused for its timestamp; None when it is not.

    A record here is offset, timestamp (ms), and the sizes of key and value; `is_partial` where
    Kafka skips keys and values, in compressed batches that keep their codec.
    """
    offset, timestamp, key_size, value_size = record
    if not _MIN_INT64 <= timestamp <= _MAX_INT64:
        return _out_of_range(offset, timestamp, now_ms, rules)
    if rules.timestamp_type is TimestampType.CREATE_TIME and timestamp != NO_TIMESTAMP:
        age = now_ms - timestamp
        if age > rules.before_max_ms or -age > rules.after_max_ms:
            return _out_of_range(offset, timestamp, now_ms, rules)
    elif appended:
        return (
            f"Invalid timestamp type in message {'Partial' if is_partial else ''}"
            f"DefaultRecord(offset={offset}, "
            f"timestamp={timestamp}, key={key_size} bytes, value={value_size} bytes). "
            "Producer should not set timestamp type to LogAppendTime."
        )
    return None


def _out_of_range(offset: int, timestamp: int, now_ms: int, rules: ValidationRules) -> str:
    """Return the error for a time out of range; one beyond 64 bits is shown as in Java."""
    return (
        f"Timestamp {_int64(timestamp)} of message with offset {offset} is out of range. "
        f"The timestamp should be within [{_int64(now_ms - rules.before_max_ms)}, "
        f"{_int64(now_ms + rules.after_max_ms)}]"
    )


def _int64(value: int) -> int:
    """Wrap as Java's long does: only texts show it."""
    return ((value - _MIN_INT64) & 0xFFFF_FFFF_FFFF_FFFF) + _MIN_INT64


def refusal(
    code: ErrorCode, errors: Sequence[tuple[int, str]], count: int
) -> RecordValidationError:
    """Return the error for records that break a rule, `count` of them in all."""
    if code == ErrorCode.INVALID_TIMESTAMP:
        message = "One or more records have been rejected due to invalid timestamp"
        return RecordValidationError(code, message, errors)
    shown = ", ".join(
        f"RecordError(batchIndex={index}, message='{message}')"
        for index, message in errors[:_SHOWN_ERRORS]
    )
    message = (
        f"One or more records have been rejected due to {count} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    return RecordValidationError(code, message, errors)


def check_producer(batch: RecordBatch) -> None:
    """Refuse to rebuild a batch whose producer Kafka's builder does not accept.

    An id below -1 is one to it, and goes to the log as it is.
    """
    if batch.producer_id == NO_PRODUCER_ID:
        is_wrong = batch.is_transactional
    else:
        is_wrong = batch.producer_epoch == _NO_PRODUCER_EPOCH or batch.base_sequence < 0
    if is_wrong:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def check_rebuilt_size(size: int, rules: ValidationRules) -> None:
    """Refuse a rebuilt batch that became too large: MESSAGE_TOO_LARGE."""
    if size > rules.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"Message batch size is {size} bytes in append topartition "
            f"{rules.topic_partition} which exceeds the maximum configured size of "
            f"{rules.max_message_bytes}.",
        )
