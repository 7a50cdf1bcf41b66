"""Builds record batches: all at once, or record by record for a producer.

Hot path: `BatchBuilder.try_append` runs once per record of a producer.

Kafka: org.apache.kafka.common.record.MemoryRecordsBuilder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.records import scan
from ottla.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    RecordBatch,
    TimestampType,
)
from ottla.records.compression import Compression, compress
from ottla.records.crc32c import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.records.record import Record
    from ottla.types import Buffer

    HeadersInput: TypeAlias = Sequence[tuple[str | bytes, bytes | None]]
    RecordInput: TypeAlias = tuple[int, Buffer | None, Buffer | None, HeadersInput]

_NO_HEADERS: Final = b"\x00"
_NO_PRODUCER_EPOCH: Final = -1
# compression ratio that try_append assumes until a batch was measured
_FIRST_RATIO: Final = 1.0
_UNLIMITED: Final = (1 << 63) - 1


def attributes_of(
    compression: Compression,
    timestamp_type: TimestampType,
    *,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: bool = False,
) -> int:
    """Return the header's flags."""
    flags = int(compression)
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        flags |= LOG_APPEND_TIME_FLAG
    if transactional:
        flags |= TRANSACTIONAL_FLAG
    if control:
        flags |= CONTROL_FLAG
    if delete_horizon:
        flags |= DELETE_HORIZON_FLAG
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
        headers = scan.header_bytes(record.headers) if record.headers else _NO_HEADERS
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
            delete_horizon=horizon is not None,
        ),
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


class BatchBuilder:
    """A batch that grows record by record until the next one would exceed `limit_bytes`.

    The first record always fits. With a codec the size is an estimate: the uncompressed size
    times `ratio`, the ratio that earlier batches of the topic reached.
    """

    __slots__ = (
        "_base_timestamp",
        "_max_timestamp",
        "_payload",
        "_plain_limit",
        "_ratio",
        "compression",
        "level",
        "limit_bytes",
        "record_count",
    )

    def __init__(
        self,
        limit_bytes: int,
        *,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        ratio: float = _FIRST_RATIO,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.compression = compression
        self.level = level
        self.record_count = 0
        self._ratio = 1.0 if compression == Compression.NONE else ratio
        self._plain_limit = int((limit_bytes - HEADER_BYTES) / self._ratio)
        self._payload = bytearray()
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP

    def try_append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput = (),
    ) -> bool:
        """Append the record (timestamp in ms), or return False when the batch is full."""
        count = self.record_count
        if not count:
            self._base_timestamp = self._max_timestamp = timestamp
        if not scan.append_record(
            self._payload,
            timestamp - self._base_timestamp,
            count,
            key,
            value,
            scan.header_bytes(headers) if headers else _NO_HEADERS,
            self._plain_limit if count else _UNLIMITED,
        ):
            return False
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self.record_count = count + 1
        return True

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp so far, -1 when empty."""
        return self._max_timestamp

    @property
    def plain_bytes(self) -> int:
        """Bytes of the batch before compression."""
        return HEADER_BYTES + len(self._payload)

    @property
    def estimated_bytes(self) -> int:
        """Bytes that the batch is expected to take."""
        return HEADER_BYTES + int(len(self._payload) * self._ratio)

    def build(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = _NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> bytearray:
        """Return the batch; further records may be appended afterwards."""
        return assemble_batch(
            compress(self.compression, self._payload, self.level),
            attributes=attributes_of(
                self.compression, TimestampType.CREATE_TIME, transactional=transactional
            ),
            record_count=self.record_count,
            last_offset_delta=max(self.record_count - 1, 0),
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
