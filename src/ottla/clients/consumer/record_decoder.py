"""Decodes consumer records directly from the bytes of a batch.

Compiled by Cython with `record_decoder.pxd`; runs uncompiled too.

Kafka: org.apache.kafka.clients.consumer.internals.CompletedFetch.parseRecord.
Hot path: all of it. benchmarks/clients.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.consumer import gc_tracking
from ottla.records.scan import cursor_over, overflows

if TYPE_CHECKING:
    from ottla.records.record import Headers, Record
    from ottla.types import TopicPartition

_LARGEST_BASE = 1 << 62


class ConsumerRecord(NamedTuple):
    """A record returned to the user; the timestamp is in ms since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers


def with_topic(partition: TopicPartition, records: list[Record]) -> list[ConsumerRecord]:
    """Add topic and partition to decoded records."""
    new = tuple.__new__
    return [new(ConsumerRecord, partition + record) for record in records]


def simple_records(
    plain: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    log_append_time: int | None,
    topic: str,
    partition: int,
) -> list[ConsumerRecord] | None:
    """Return the records of an uncompressed payload; None for records with headers or invalid ones.

    `RecordBatch.records` decodes those, and reports what is invalid. With log_append_time (ms) all
    records have that timestamp.
    """
    raw = plain
    end = len(plain)
    if count < 0 or count > end // 7 + 1:  # a record has at least seven bytes
        return None
    if base_offset > _LARGEST_BASE or base_offset < -_LARGEST_BASE:
        return None
    cursor = cursor_over(plain, 0, end)
    kind: type = ConsumerRecord
    is_log_append_time = log_append_time is not None
    append_time = 0 if log_append_time is None else log_append_time
    records: list[ConsumerRecord] = []
    for _ in range(count):
        size = cursor.varint()
        record_end = cursor.position + size
        if cursor.fault or size < 0 or record_end > end:
            return None
        cursor.skip(1)
        timestamp_delta = cursor.varlong()
        offset_delta = cursor.varint()
        key_size = cursor.varint()
        key_start = cursor.skip(key_size)
        value_size = cursor.varint()
        value_start = cursor.skip(value_size)
        header_count = cursor.varint()
        if cursor.fault or header_count or cursor.position != record_end:
            return None
        if overflows(base_timestamp, timestamp_delta):
            return None
        timestamp = append_time if is_log_append_time else base_timestamp + timestamp_delta
        key = raw[key_start : key_start + key_size] if key_size >= 0 else None
        value = raw[value_start : value_start + value_size] if value_size >= 0 else None
        fields = (topic, partition, base_offset + offset_delta, timestamp, key, value, ())
        # Not a bound __new__: Cython calls the type's slot directly, twice as fast.
        record: ConsumerRecord = tuple.__new__(kind, fields)
        # Bytes, text and numbers form no cycles; searching for them cost a sixth of `poll`. The
        # collector untracks such tuples itself, but not named tuples.
        gc_tracking.untrack(record)
        records.append(record)
    return records if cursor.position == end else None
