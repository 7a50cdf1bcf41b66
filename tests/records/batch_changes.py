"""Changes of record batches for tests: compaction, and header fields that a broker assigns."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.records import scan
from ottla.records.batch import DELETE_HORIZON_FLAG, RecordBatch, TimestampType
from ottla.records.builder import assemble_batch, attributes_of
from ottla.records.compression import Compression, compress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.records.record import Record


def assign_offset(batch: RecordBatch, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and leader epoch, which the checksum does not cover."""
    struct.pack_into(">q", batch.view, batch.position, base_offset)
    struct.pack_into(">i", batch.view, batch.position + 12, leader_epoch)


def set_attributes(batch: bytearray, attributes: int) -> None:
    """Replace the flags of a batch and update its checksum."""
    struct.pack_into(">h", batch, 21, attributes)
    struct.pack_into(">I", batch, 17, RecordBatch(batch).computed_crc())


def rebuild_batch(
    batch: RecordBatch,
    records: Iterable[Record],
    *,
    delete_horizon_ms: int | None = None,
    compression: Compression | None = None,
    level: int | None = None,
) -> bytearray:
    """Return the batch with only the given records, as compaction leaves it.

    Offsets, first and last offset, producer fields and flags are unchanged. Without records an
    empty batch remains, which keeps a producer's last sequence. A delete_horizon_ms replaces the
    base timestamp and sets its flag (KIP-534).
    """
    kept = list(records)
    if not kept:
        return _empty_batch(batch)
    codec = batch.compression if compression is None else compression
    appended = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    horizon = batch.delete_horizon_ms if delete_horizon_ms is None else delete_horizon_ms
    base_timestamp = kept[0].timestamp if horizon is None else horizon
    payload = bytearray()
    for record in kept:
        delta = record.timestamp - base_timestamp
        headers = scan.header_bytes(record.headers) if record.headers else scan.NO_HEADERS
        offset_delta = record.offset - batch.base_offset
        scan.append_record(payload, delta, offset_delta, record.key, record.value, headers)
    largest = max(record.timestamp for record in kept)
    return assemble_batch(
        compress(codec, payload, level),
        attributes=attributes_of(
            codec,
            batch.timestamp_type,
            transactional=batch.is_transactional,
            control=batch.is_control,
        )
        | (DELETE_HORIZON_FLAG if horizon is not None else 0),
        record_count=len(kept),
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=batch.max_timestamp if appended else largest,
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def _empty_batch(batch: RecordBatch) -> bytearray:
    return assemble_batch(
        b"",
        attributes=attributes_of(
            Compression.NONE,
            batch.timestamp_type,
            transactional=batch.is_transactional,
            control=batch.is_control,
        ),
        record_count=0,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=batch.max_timestamp,
        max_timestamp=batch.max_timestamp,
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
