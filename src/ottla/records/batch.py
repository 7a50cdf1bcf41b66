"""A view of one record batch: 61 bytes of header, then the records.

No bytes are copied: fields are read from the header with one unpack.

Hot path: `RecordBatch(view, position)` is created once per batch on produce, append and fetch.

Kafka: org.apache.kafka.common.record.DefaultRecordBatch.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage
from ottla.records import scan
from ottla.records.compression import (
    DEFAULT_LIMIT_BYTES,
    Compression,
    Decompressor,
    decompress,
)
from ottla.records.crc32c import crc32c

if TYPE_CHECKING:
    from ottla.records.record import Record
    from ottla.types import Buffer

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
LAST_OFFSET_DELTA_POSITION: Final = 23
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_POSITION: Final = 43
PRODUCER_EPOCH_POSITION: Final = 51
BASE_SEQUENCE_POSITION: Final = 53
RECORD_COUNT_POSITION: Final = 57
COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
_SMALLEST_LEGACY_BYTES: Final = 14

_INT32 = Struct(">i")
_INT8: Final = Struct(">b")
_CRC = Struct(">I")
_PRODUCER = Struct(">qhi")


class TimestampType(IntEnum):
    """Who set the timestamps; the ids of Spark's and Kafka's `timestampType`."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def config_name(self) -> str:
        """Return the spelling of `message.timestamp.type`."""
        return ("NoTimestampType", "CreateTime", "LogAppendTime")[self + 1]


def add_to_sequence(sequence: int, increment: int) -> int:
    """Return the sequence number increased by `increment`; it wraps from 2^31-1 to 0."""
    return (sequence + increment) & 0x7FFF_FFFF


class RecordBatch:
    """The batch at `position` of `view`; raises CorruptMessage unless all of it is there."""

    __slots__ = ("_fields", "position", "view")
    _fields: tuple[int, ...]

    def __init__(self, view: Buffer, position: int = 0) -> None:
        self.view = view if type(view) is memoryview else memoryview(view)
        self.position = position
        left = len(view) - position
        if left < HEADER_BYTES:
            raise CorruptMessage(
                f"A record batch header takes {HEADER_BYTES} bytes, but {left} are left."
            )
        self._fields = HEADER.unpack_from(view, position)
        length = self._fields[1] + LOG_OVERHEAD_BYTES
        if not HEADER_BYTES <= length <= left:
            raise CorruptMessage(
                f"A record batch claims {length} bytes; the smallest has {HEADER_BYTES}, "
                f"and {left} are left."
            )
        if self._fields[3] != 2:
            raise CorruptMessage(f"Invalid magic found in record: {self._fields[3]}")

    @property
    def base_offset(self) -> int:
        """Offset of the first record, even if compaction removed that record."""
        return self._fields[0]

    @property
    def leader_epoch(self) -> int:
        """Epoch of the leader that appended the batch; -1 until then."""
        return self._fields[2]

    @property
    def magic(self) -> int:
        """Version of the format."""
        return self._fields[3]

    @property
    def crc(self) -> int:
        """Checksum as written in the header."""
        return self._fields[4]

    @property
    def attributes(self) -> int:
        """Flags: codec, timestamp type, transactional, control, delete horizon."""
        return self._fields[5]

    @property
    def last_offset_delta(self) -> int:
        """Last offset less the base offset; compaction does not change it."""
        return self._fields[6]

    @property
    def base_timestamp(self) -> int:
        """Base of the records' timestamp deltas (ms); the delete horizon when that flag is set."""
        return self._fields[7]

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of the records, or the append time (ms)."""
        return self._fields[8]

    @property
    def producer_id(self) -> int:
        """Id of an idempotent producer, else -1."""
        return self._fields[9]

    @property
    def producer_epoch(self) -> int:
        """Epoch of that producer, else -1."""
        return self._fields[10]

    @property
    def base_sequence(self) -> int:
        """Sequence number of the first record, -1 without an idempotent producer."""
        return self._fields[11]

    @property
    def record_count(self) -> int:
        """Records that the header claims."""
        return self._fields[12]

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self._fields[1] + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """Offset of the last record, also when compaction took that record away."""
        return self._fields[0] + self._fields[6]

    @property
    def next_offset(self) -> int:
        """Offset that follows the batch."""
        return self._fields[0] + self._fields[6] + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 without an idempotent producer."""
        if self._fields[11] == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self._fields[11], self._fields[6])

    @property
    def compression(self) -> Compression:
        """Codec of the records; raises CorruptMessage for an unknown id."""
        return Compression.from_id(self._fields[5] & COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps."""
        if self._fields[5] & LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self._fields[5] & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether the records are control records, which applications do not receive."""
        return bool(self._fields[5] & CONTROL_FLAG)

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent producer wrote the batch."""
        return self._fields[9] > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """Time from which the cleaner may drop tombstones and markers; None until it is set."""
        return self._fields[7] if self._fields[5] & DELETE_HORIZON_FLAG else None

    @property
    def buffer(self) -> memoryview:
        """The whole batch, not copied."""
        return self.view[self.position : self.position + self.size]

    @property
    def payload(self) -> memoryview:
        """The stored records, possibly compressed, not copied."""
        return self.view[self.position + HEADER_BYTES : self.position + self.size]

    def computed_crc(self) -> int:
        """Return the checksum of the batch's bytes."""
        position = self.position
        return crc32c(self.view[position + ATTRIBUTES_POSITION : position + self.size])

    def check_crc(self) -> None:
        """Raise CorruptMessage when the checksum in the header does not match the bytes."""
        computed = self.computed_crc()
        if computed != self._fields[4]:
            raise CorruptMessage(
                f"Record is corrupt (stored crc = {self._fields[4]}, computed crc = {computed})"
            )

    def set_transactional(self) -> None:
        """Mark the batch as part of a transaction; `set_producer` updates the checksum."""
        self.view[self.position + ATTRIBUTES_POSITION + 1] |= TRANSACTIONAL_FLAG

    def set_producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Set the producer and its first sequence number, and update the checksum."""
        _PRODUCER.pack_into(
            self.view, self.position + PRODUCER_POSITION, producer_id, producer_epoch, base_sequence
        )
        _CRC.pack_into(self.view, self.position + CRC_POSITION, self.computed_crc())
        self._fields = HEADER.unpack_from(self.view, self.position)

    def decompressed_payload(
        self, limit: int = DEFAULT_LIMIT_BYTES, decompressor: Decompressor | None = None
    ) -> Buffer:
        """Return the records' bytes, decompressed to at most `limit` bytes if compressed.

        With a decompressor the result is valid until its next use. Raises CorruptMessage or
        KafkaError INVALID_RECORD.
        """
        codec = self.compression
        if codec == Compression.NONE:
            return self.payload
        if decompressor is None:
            return decompress(codec, self.payload, limit)
        return decompressor.decompress(codec, self.payload, limit)

    def records(self, limit: int = DEFAULT_LIMIT_BYTES) -> list[Record]:
        """Return all records, decompressed into at most limit bytes.

        Raises CorruptMessage when they do not match the header. The checksum is not verified;
        `check_crc` does that.
        """
        fields = self._fields
        if not fields[12]:  # compaction removed all records: there is nothing to decompress
            return []
        return scan.decode_records(
            self.decompressed_payload(limit),
            fields[12],
            fields[0],
            fields[7],
            fields[8] if fields[5] & LOG_APPEND_TIME_FLAG else None,
        )

    def __repr__(self) -> str:
        return (
            f"RecordBatch(base_offset={self.base_offset}, last_offset={self.last_offset}, "
            f"records={self.record_count}, size={self.size})"
        )


def claimed_bytes(view: memoryview, position: int) -> int:
    """Return the size in the header of a batch of any magic, which may exceed the bytes present.

    Raises CorruptMessage for an invalid magic or size.
    """
    left = len(view) - position
    if left < LOG_OVERHEAD_BYTES:
        return left + 1
    size: int = _INT32.unpack_from(view, position + 8)[0] + LOG_OVERHEAD_BYTES
    if size < _SMALLEST_LEGACY_BYTES + LOG_OVERHEAD_BYTES:
        raise CorruptMessage(
            f"Record size {size - LOG_OVERHEAD_BYTES} is less than the minimum record "
            f"overhead ({_SMALLEST_LEGACY_BYTES})"
        )
    if left <= MAGIC_POSITION:
        return left + 1
    magic = _INT8.unpack_from(view, position + MAGIC_POSITION)[0]
    if not 0 <= magic <= 2:
        raise CorruptMessage(f"Invalid magic found in record: {magic}")
    return size
