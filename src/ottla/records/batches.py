"""Iterates over consecutive record batches of all formats.

Kafka: org.apache.kafka.common.record.{ByteBufferLogInputStream, MemoryRecords}.

Of message formats 0 and 1, which old brokers wrote and old files still hold, an uncompressed
message is a batch of one. A compressed one wraps a set of messages in its value: their offsets are
absolute in format 0; in format 1 they are relative to the first, and the wrapper has the offset of
the last (AbstractLegacyRecordBatch, LegacyRecord). They are read only: Kafka 4 does not write them.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

import xxhash

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.batch import (
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    RecordBatch,
    TimestampType,
    claimed_bytes,
)
from ottla.records.compression import DEFAULT_LIMIT_BYTES, Compression, Decompressor, decompress
from ottla.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.types import Buffer


_HEADER = Struct(">qiIbb")
_HEADER_BYTES: Final = 18
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_SMALLEST_BYTES: Final = 26  # a header, no key, no value


class LegacyBatch(RecordBatch):
    """One message of format 0 or 1, with the messages that it wraps if it is compressed."""

    __slots__ = ("_records",)

    def __init__(self, view: Buffer, position: int = 0) -> None:
        self.view = view if type(view) is memoryview else memoryview(view)
        self.position = position
        self._records: list[Record] | None = None
        left = len(view) - position
        if left < _SMALLEST_BYTES:
            raise CorruptMessage(f"A message takes {_SMALLEST_BYTES} bytes, but {left} are left.")
        offset, length, crc, magic, attributes = _HEADER.unpack_from(view, position)
        size = length + LOG_OVERHEAD_BYTES
        if magic not in (0, 1):
            raise CorruptMessage(f"Invalid magic found in record: {magic}")
        if not _SMALLEST_BYTES + 8 * magic <= size <= left:
            raise CorruptMessage(
                f"A message claims {size} bytes; the smallest has {_SMALLEST_BYTES + 8 * magic}, "
                f"and {left} are left."
            )
        timestamp = NO_TIMESTAMP
        if magic:
            timestamp = _INT64.unpack_from(view, position + _HEADER_BYTES)[0]
        # the fields of format 2 in their order, where this format has them
        self._fields = (
            offset,
            length,
            -1,
            magic,
            crc,
            attributes,
            0,
            timestamp,
            timestamp,
            -1,
            -1,
            -1,
            -1,
        )

    @property
    def base_offset(self) -> int:
        """Offset of the first wrapped message; decompresses on first use."""
        if not self._fields[5] & 7:
            return self._fields[0]
        records = self._kept_records()
        return records[0].offset if records else self._fields[0]

    @property
    def last_offset(self) -> int:
        """Offset of the last wrapped message."""
        return self._fields[0]

    @property
    def next_offset(self) -> int:
        """Offset that follows the message."""
        return self._fields[0] + 1

    @property
    def last_offset_delta(self) -> int:
        """Last offset less the first."""
        return self._fields[0] - self.base_offset

    @property
    def record_count(self) -> int:
        """Number of wrapped messages; decompresses on first use."""
        return len(self._kept_records()) if self._fields[5] & 7 else 1

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps; none in format 0."""
        if not self._fields[3]:
            return TimestampType.NO_TIMESTAMP_TYPE
        return super().timestamp_type

    @property
    def is_transactional(self) -> bool:
        """False: transactions came with format 2."""
        return False

    @property
    def is_control(self) -> bool:
        """False: control batches came with format 2."""
        return False

    @property
    def delete_horizon_ms(self) -> int | None:
        """None: horizons came with format 2."""
        return None

    @property
    def payload(self) -> memoryview:
        """The value: a compressed set of messages, or the application's bytes."""
        return memoryview(self._key_and_value()[1] or b"")

    def computed_crc(self) -> int:
        """Return the checksum (CRC-32, not CRC-32C) of the bytes."""
        return crc32(self.view[self.position + MAGIC_POSITION : self.position + self.size])

    def set_producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Refuse: producer ids came with format 2."""
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"Message format {self._fields[3]} has no producer: id {producer_id}, epoch "
            f"{producer_epoch} and sequence {base_sequence} cannot be set.",
        )

    def decompressed_payload(
        self, limit: int = DEFAULT_LIMIT_BYTES, decompressor: Decompressor | None = None
    ) -> Buffer:
        """Return the wrapped messages, or the value of an uncompressed message."""
        codec = self.compression
        payload: Buffer = self.payload
        if codec == Compression.NONE:
            return payload
        if codec == Compression.ZSTD:
            raise CorruptMessage("Format 0 and 1 have no zstd")
        if codec == Compression.LZ4 and not self._fields[3]:
            payload = _fix_lz4_header(payload)
        if decompressor is None:
            return decompress(codec, payload, limit)
        return decompressor.decompress(codec, payload, limit)

    def records(self, limit: int = DEFAULT_LIMIT_BYTES) -> list[Record]:
        """Return the messages, decompressed to at most limit bytes; raises CorruptMessage."""
        offset, timestamp = self._fields[0], self._fields[7]
        if not self._fields[5] & 7:
            key, value = self._key_and_value()
            return [Record(offset, timestamp, key, value)]
        plain = memoryview(self.decompressed_payload(limit))
        inner: list[Record] = []
        position = 0
        while position < len(plain):
            message = LegacyBatch(plain, position)
            if message.magic != self._fields[3] or message.compression != Compression.NONE:
                raise CorruptMessage("Inner record has another magic or is compressed again")
            inner.extend(message.records())
            position += message.size
        if not inner:
            raise CorruptMessage("Found invalid compressed record set with no inner records")
        if not self._fields[3]:
            return inner
        shift = offset - inner[-1].offset
        appended = self._fields[5] & LOG_APPEND_TIME_FLAG
        return [
            record._replace(
                offset=record.offset + shift,
                timestamp=timestamp if appended else record.timestamp,
            )
            for record in inner
        ]

    def _kept_records(self) -> list[Record]:
        if self._records is None:
            self._records = self.records()
        return self._records

    def _key_and_value(self) -> tuple[bytes | None, bytes | None]:
        end = self.position + self.size
        start = self.position + _HEADER_BYTES + 8 * self._fields[3]
        key, start = _take(self.view, start, end)
        value, start = _take(self.view, start, end)
        return key, value


def _take(view: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    if position + 4 > end:
        raise CorruptMessage("A message is truncated")
    size = _INT32.unpack_from(view, position)[0]
    position += 4
    if size < 0:
        return None, position
    if position + size > end:
        raise CorruptMessage("A message is truncated")
    return bytes(view[position : position + size]), position + size


def _fix_lz4_header(payload: Buffer) -> Buffer:
    """Correct the header checksum of a format 0 frame, whose writers computed it wrongly."""
    if len(payload) < 15:
        return payload
    frame = bytearray(payload)
    end = 14 if frame[4] & 0x08 else 6
    frame[end] = (xxhash.xxh32_intdigest(bytes(frame[4:end])) >> 8) & 0xFF
    return frame


def iterate_batches(
    view: Buffer, position: int = 0, *, partial_tail: bool = False
) -> Iterator[RecordBatch]:
    """Iterate over consecutive batches of any magic.

    A truncated batch raises CorruptMessage; with partial_tail it ends the iteration, as fetch
    responses need: brokers may truncate the last batch. A batch with an invalid magic or size
    in its header always raises CorruptMessage.
    """
    view = memoryview(view)
    end = len(view)
    while position < end:
        left = end - position
        size = claimed_bytes(view, position)
        if size > left:
            if partial_tail:
                return
            raise CorruptMessage(f"A record batch is truncated: {left} bytes are left.")
        batch = batch_at(view, position)
        yield batch
        position += batch.size


def batch_at(view: memoryview, position: int) -> RecordBatch:
    """Return the batch of any magic at position; raises CorruptMessage unless it is complete."""
    if len(view) - position > MAGIC_POSITION and view[position + MAGIC_POSITION] < 2:
        return LegacyBatch(view, position)
    return RecordBatch(view, position)
