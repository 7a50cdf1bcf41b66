"""Builds a batch again: in the topic's codec, or with consecutive offsets.

Kafka: org.apache.kafka.storage.internals.log.LogValidator.buildRecordsAndAssignOffsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import NO_TIMESTAMP, TimestampType
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from ottla.records.scan import decode_records
from ottla.records.validation_rules import check_producer, check_rebuilt_size

if TYPE_CHECKING:
    from ottla.records.batch import RecordBatch
    from ottla.records.validation_rules import ValidationRules


def rebuild(
    batch: RecordBatch,
    plain: memoryview,
    *,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    rules: ValidationRules,
    codec: int,
) -> memoryview:
    """Return the batch in this codec with offsets from next_offset on.

    KafkaError UNKNOWN_SERVER_ERROR for what Kafka's builder does not take, MESSAGE_TOO_LARGE when
    the result is too large.
    """
    records = decode_records(
        plain,
        batch.record_count,
        batch.base_offset,
        batch.base_timestamp,
        batch.max_timestamp if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else None,
    )
    if any(record.timestamp < NO_TIMESTAMP for record in records):
        # Kafka's builder takes none; and their distance from the first may be beyond 64 bits
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    check_producer(batch)
    built = encode_batch(
        [record[1:] for record in records],
        base_offset=next_offset,
        leader_epoch=leader_epoch,
        compression=Compression(codec),
        level=rules.compression_level,
        timestamp_type=rules.timestamp_type,
        log_append_time=now_ms,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
    )
    check_rebuilt_size(len(built), rules)
    return memoryview(built)
