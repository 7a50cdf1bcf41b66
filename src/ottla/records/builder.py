"""Builds record batches.

Kafka: org.apache.kafka.common.record.MemoryRecordsBuilder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.records import scan
from ottla.records.batch import (
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    TimestampType,
)
from ottla.records.compression import Compression, compress
from ottla.records.crc32c import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.types import Buffer

    HeadersInput: TypeAlias = Sequence[tuple[str | bytes, bytes | None]]
    RecordInput: TypeAlias = tuple[int, Buffer | None, Buffer | None, HeadersInput]

_NO_PRODUCER_EPOCH: Final = -1


def attributes_of(
    compression: Compression,
    timestamp_type: TimestampType,
    *,
    transactional: bool = False,
    control: bool = False,
) -> int:
    """Return the header's flags."""
    flags = int(compression)
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        flags |= LOG_APPEND_TIME_FLAG
    if transactional:
        flags |= TRANSACTIONAL_FLAG
    if control:
        flags |= CONTROL_FLAG
    return flags


def assemble_batch(  # noqa: PLR0913 - the header has that many fields
    payload: Buffer,
    *,
    attributes: int,
    record_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = _NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """Return a batch of records that are already encoded (and compressed), with its header."""
    batch = bytearray(HEADER_BYTES)
    batch += payload
    header = [
        base_offset,
        len(batch) - LOG_OVERHEAD_BYTES,
        leader_epoch,
        2,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ]
    HEADER.pack_into(batch, 0, *header)
    header[4] = crc32c(memoryview(batch)[21:])
    HEADER.pack_into(batch, 0, *header)
    return batch


def encode_batch(  # noqa: PLR0913 - the header has that many fields
    records: Sequence[RecordInput],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = _NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """Return one batch of (timestamp ms, key, value, headers) with consecutive offsets.

    With LOG_APPEND_TIME readers see log_append_time as every record's timestamp.
    """
    base_timestamp = records[0][0] if records else NO_TIMESTAMP
    payload = bytearray()
    max_timestamp = scan.append_records(payload, records, base_timestamp)
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        max_timestamp = NO_TIMESTAMP if log_append_time is None else log_append_time
    return assemble_batch(
        compress(compression, payload, level),
        attributes=attributes_of(
            compression, timestamp_type, transactional=transactional, control=control
        ),
        record_count=len(records),
        last_offset_delta=max(len(records) - 1, 0),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
