"""Control batches: end-of-transaction markers and the control records of the metadata log.

The key is version and type; the value is a message that `protocol.records` describes, encoded by
the caller, except for the end-of-transaction marker, which is two integers.

Kafka: org.apache.kafka.common.record.{ControlRecordType, EndTransactionMarker, ControlRecordUtils}.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.builder import encode_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.records.record import Record
    from ottla.types import Buffer

_KEY = Struct(">hh")
_END_TXN_MARKER = Struct(">hi")
_NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()


class ControlRecordType(IntEnum):
    """Types of control records, with Kafka's names."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


def encode_control_key(control_type: ControlRecordType) -> bytes:
    """Return the key of a control record."""
    if control_type == ControlRecordType.UNKNOWN:
        raise ValueError("Cannot serialize UNKNOWN control record type")
    return _KEY.pack(0, control_type)


def decode_control_type(key: Buffer | None) -> ControlRecordType:
    """Return the type in a control record's key; UNKNOWN for types of newer releases.

    Raises KafkaError INVALID_RECORD for a key that is too short, CorruptMessage for a null key.
    """
    if key is None:
        raise CorruptMessage("A control record has no key.")
    if len(key) < 4:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            "Invalid value size found for control record key. Must have at least 4 bytes, "
            f"but found only {len(key)}",
        )
    version, control_type = _KEY.unpack_from(key, 0)
    if version < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Invalid version found for control record: {version}. May indicate data corruption",
        )
    try:
        return ControlRecordType(control_type)
    except ValueError:
        return ControlRecordType.UNKNOWN


def encode_control_batch(
    records: Sequence[tuple[ControlRecordType, Buffer]],
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> bytearray:
    """Return a control batch of (type, encoded value); timestamp in ms."""
    return encode_batch(
        [(timestamp, encode_control_key(kind), value, _NO_HEADERS) for kind, value in records],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
        control=True,
    )


def encode_end_txn_marker(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Return the batch that ends a producer's transaction in one partition."""
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    return encode_control_batch(
        [(kind, _END_TXN_MARKER.pack(0, coordinator_epoch))],
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
    )


def decode_end_txn_marker(record: Record) -> tuple[ControlRecordType, int]:
    """Return (COMMIT or ABORT, coordinator epoch); KafkaError INVALID_RECORD for anything else."""
    kind = decode_control_type(record.key)
    if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Invalid end transaction marker type: {kind.name}",
        )
    value = record.value
    if value is None or len(value) < 6:
        size = 0 if value is None else len(value)
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            "Invalid value size found for end transaction marker. Must have at least 6 bytes, "
            f"but found only {size}",
        )
    version, coordinator_epoch = _END_TXN_MARKER.unpack_from(value, 0)
    if version < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Invalid version found for end transaction marker: {version}. "
            "May indicate data corruption",
        )
    return kind, coordinator_epoch
