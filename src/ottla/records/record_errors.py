"""Errors of the records of a batch, one by one, in Kafka's words.

Called when the scan of `records/validator.py` has found an error.

Kafka: org.apache.kafka.storage.internals.log.LogValidator.{validateRecord, processRecordErrors}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage, ErrorCode
from ottla.records.batch import NO_TIMESTAMP, TimestampType
from ottla.records.scan import decode_records, outline_records
from ottla.records.validation_rules import NO_KEY, invalid, refusal, timestamp_problem

if TYPE_CHECKING:
    from ottla.records.batch import RecordBatch
    from ottla.records.validation_rules import ValidationRules


def validate_each(
    batch: RecordBatch, plain: memoryview, now_ms: int, rules: ValidationRules
) -> tuple[bool, int]:
    """Check every record; return whether offsets are not consecutive, and the largest timestamp.

    Raises RecordValidationError for records that break a rule, INVALID_RECORD for broken ones.
    """
    appended = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    codec = batch.compression
    is_partial = bool(codec) and rules.compression_type in {None, codec}
    try:
        records = decode_records(
            plain,
            batch.record_count,
            batch.base_offset,
            batch.base_timestamp,
            batch.max_timestamp if appended else None,
        )
    except CorruptMessage as error:
        _refuse_times(batch, plain, now_ms, rules)
        raise invalid(error.message) from error
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    for index, record in enumerate(records):
        if rules.is_compacted and record.key is None:
            errors.append((index, f"{NO_KEY} {rules.topic_partition}"))
            continue
        problem = timestamp_problem(
            (record.offset, record.timestamp, len(record.key or b""), len(record.value or b"")),
            now_ms,
            rules,
            appended=appended,
            is_partial=is_partial,
        )
        if problem is not None:
            code = ErrorCode.INVALID_TIMESTAMP
            errors.append((index, problem))
    if errors:
        raise refusal(code, errors, len(errors))
    base = batch.base_offset
    renumber = any(record.offset != base + index for index, record in enumerate(records))
    return renumber, max((record.timestamp for record in records), default=NO_TIMESTAMP)


def _refuse_times(
    batch: RecordBatch, plain: memoryview, now_ms: int, rules: ValidationRules
) -> None:
    """Raise INVALID_TIMESTAMP for records that are whole, but whose times are beyond 64 bits."""
    try:
        outlines = outline_records(plain, 0, len(plain), 0, batch.record_count)
    except CorruptMessage:
        return
    problems = (
        timestamp_problem(
            (offset, batch.base_timestamp + delta, max(key_size, 0), max(value_size, 0)),
            now_ms,
            rules,
            appended=batch.timestamp_type is TimestampType.LOG_APPEND_TIME,
        )
        for offset, delta, key_size, value_size in outlines
    )
    errors = [(index, problem) for index, problem in enumerate(problems) if problem is not None]
    if errors:
        raise refusal(ErrorCode.INVALID_TIMESTAMP, errors, len(errors))
