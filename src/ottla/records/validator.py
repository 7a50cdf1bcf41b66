"""Validates a batch that is about to be appended and gives it its offsets, in place where it can.

One sequence of steps: header, checksum, records, place. A step that finds something unusual calls
a function that handles just that: it explains what is wrong in Kafka's words
(`records/batch_errors.py`, `records/record_errors.py`), builds the batch again
(`records/rebuild.py`), or raises `OffloadRequired` when the work would hold the caller's thread for
more than some milliseconds; `records/large_batches.py` then does it, and its result comes back as a
`CheckedBatch`. Compiled by Cython with `validator.pxd`; runs uncompiled too.

Differences from Kafka, all towards refusing or correcting what would stay broken in the log:
uncompressed records whose offset deltas are not 0, 1, 2… are numbered again; a compressed record
must fill the length that it claims; records that do not decompress are INVALID_RECORD, where Kafka
answers UNKNOWN_SERVER_ERROR; a record's time beyond 64 bits is INVALID_TIMESTAMP, where Kafka lets
it wrap around; and the records of a batch may take `max_decompressed_bytes` at most.

Hot path: `validate`. benchmarks/records.py.

Kafka: org.apache.kafka.storage.internals.log.LogValidator, UnifiedLog.analyzeAndValidateRecords.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla import native
from ottla.errors import CorruptMessage
from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    BASE_SEQUENCE_POSITION,
    BASE_TIMESTAMP_POSITION,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_POSITION,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    LEADER_EPOCH_POSITION,
    LENGTH_POSITION,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    PRODUCER_EPOCH_POSITION,
    PRODUCER_POSITION,
    RECORD_COUNT_POSITION,
    TRANSACTIONAL_FLAG,
    RecordBatch,
)
from ottla.records.batch_errors import LOOP_BYTES, UnreadableRecords, only_batch, refuse_header
from ottla.records.compression import Compression, DecompressionLimitExceeded, Decompressor
from ottla.records.crc32c import crc32c
from ottla.records.rebuild import rebuild
from ottla.records.record_errors import validate_each
from ottla.records.scan import cursor_over, walk_records
from ottla.records.validation_rules import OffloadRequired, invalid, out_of_sequence

if TYPE_CHECKING:
    from ottla.records.validation_rules import CheckedBatch, ValidationRules

__all__ = [
    "LOOP_BYTES",
    "AppendOrigin",
    "UnreadableRecords",
    "ValidatedBatch",
    "is_single_batch",
    "validate",
]
_KNOWN_FLAGS: Final = 0x7F
_UINT32: Final = 0xFFFF_FFFF
_INT31: Final = 0x7FFF_FFFF
# Positions and flags of `records.batch` as C numbers, see validator.pxd.
_MAGIC: Final = 2
_MAGIC_AT: Final = MAGIC_POSITION
_OVERHEAD: Final = LOG_OVERHEAD_BYTES
_LENGTH_AT: Final = LENGTH_POSITION
_LEADER_EPOCH_AT: Final = LEADER_EPOCH_POSITION
_CRC_AT: Final = CRC_POSITION
_ATTRIBUTES_AT: Final = ATTRIBUTES_POSITION
_DELTA_AT: Final = LAST_OFFSET_DELTA_POSITION
_BASE_TIME_AT: Final = BASE_TIMESTAMP_POSITION
_MAX_TIME_AT: Final = MAX_TIMESTAMP_POSITION
_PRODUCER_AT: Final = PRODUCER_POSITION
_EPOCH_AT: Final = PRODUCER_EPOCH_POSITION
_SEQUENCE_AT: Final = BASE_SEQUENCE_POSITION
_COUNT_AT: Final = RECORD_COUNT_POSITION
_HEADER_SIZE: Final = HEADER_BYTES
_CODEC: Final = COMPRESSION_MASK
_APPEND_TIME: Final = LOG_APPEND_TIME_FLAG
_TRANSACTIONAL: Final = TRANSACTIONAL_FLAG
_CONTROL: Final = CONTROL_FLAG
_LOOP_SIZE: Final = LOOP_BYTES
_LOOP_REBUILT_BYTES: Final = 128 * 1024
_LOOP_VALIDATED_RECORDS: Final = 2048
_LOOP_PIECES: Final = 512
_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1
_NONE: Final = -1


class AppendOrigin(Enum):
    """The origin of an append, which determines the checks."""

    REPLICATION = "REPLICATION"
    COORDINATOR = "COORDINATOR"
    CLIENT = "CLIENT"


_CLIENT: Final = AppendOrigin.CLIENT  # looked up once: an enum's members are found slowly


class ValidatedBatch(NamedTuple):
    """A batch as it is written, with the fields that the log uses."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    max_timestamp: int
    is_transactional: bool
    is_control: bool
    position: int
    """Where it starts in what is appended: 0, since it is appended alone."""
    size: int
    buffer: memoryview
    record_count: int
    log_append_time_ms: int
    """-1 unless message.timestamp.type is LogAppendTime."""

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.record_count + 1


def is_single_batch(records: memoryview) -> bool:
    """Whether records are one whole batch of magic 2 outside of transactions, by its header."""
    data = native.bytes_of(records)
    is_whole = _is_whole(data, len(records))
    return is_whole and not native.int_at(data, _ATTRIBUTES_AT, 2) & _TRANSACTIONAL


def _is_whole(data: Any, size: int) -> bool:
    return (
        size >= _HEADER_SIZE
        and data[_MAGIC_AT] == _MAGIC
        and native.int_at(data, _LENGTH_AT, 4) == size - _OVERHEAD
    )


def validate(  # noqa: C901 - the steps of the hot path
    view: memoryview,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    rules: ValidationRules,
    origin: AppendOrigin = _CLIENT,
) -> ValidatedBatch:
    """Check one batch against the rules and give it the offsets from next_offset on.

    A writable view is patched in place, of a read-only one a copy is made. Raises
    RecordValidationError for records that break a rule; KafkaError INVALID_RECORD,
    MESSAGE_TOO_LARGE or CorruptMessage for the batch; OffloadRequired for a client's batch that has
    to be checked by `check_large_batch` and placed by `place_checked`.
    """
    is_client = origin is _CLIENT
    data, size = native.bytes_of(view), len(view)
    if not _is_whole(data, size):
        view = only_batch(view, is_client=is_client)
        data, size = native.bytes_of(view), len(view)
    max_bytes, is_log_append_time, before_max_ms, after_max_ms, requires_keys, target = (
        rules.checked
    )
    attributes, delta = native.int_at(data, _ATTRIBUTES_AT, 2), native.int_at(data, _DELTA_AT, 4)
    count = native.int_at(data, _COUNT_AT, 4)
    checksum = crc32c(view[_ATTRIBUTES_AT:])
    if (
        size > max_bytes
        or checksum != native.int_at(data, _CRC_AT, 4) & _UINT32
        or (
            is_client
            and (
                native.int_at(data, 0, 8)
                or delta < 0
                or count != delta + 1
                or attributes & _CONTROL
                or size > _LOOP_SIZE
                or (
                    native.int_at(data, _SEQUENCE_AT, 4) < 0 <= native.int_at(data, _PRODUCER_AT, 8)
                )
            )
        )
    ):
        refuse_header(view, rules, is_client=is_client)
    codec = attributes & _CODEC
    if codec:
        plain = decompress_records(view, codec, rules, is_client=is_client)
        cursor = cursor_over(plain, 0, len(plain))
    else:
        cursor = cursor_over(view, _HEADER_SIZE, size)
        plain = view
    earliest, latest = _MIN_INT64, _MAX_INT64
    if not is_log_append_time:
        earliest = now_ms - before_max_ms
        if after_max_ms < _MAX_INT64 - now_ms:
            latest = now_ms + after_max_ms
    base_time = native.int_at(data, _BASE_TIME_AT, 8)
    faults = walk_records(cursor, count, base_time, earliest, latest, requires_keys, 0)
    largest = cursor.largest
    if faults or attributes & _APPEND_TIME:
        _offload_when(count > _LOOP_VALIDATED_RECORDS, view, rules, is_client)
        faults, largest = validate_each(RecordBatch(view), _records(view, plain), now_ms, rules)
    if faults and codec and target in (-1, codec):
        raise out_of_sequence(rules)
    if faults or (target not in (-1, codec) and (codec or not attributes & _CONTROL)):
        view = _rebuilt(
            view, _records(view, plain), next_offset, leader_epoch, now_ms, rules, is_client
        )
        largest = now_ms if is_log_append_time else largest
        append_time = now_ms if is_log_append_time else _NONE
        return _summary(view, native.bytes_of(view), next_offset + count - 1, largest, append_time)
    if is_log_append_time:
        return place(view, next_offset, leader_epoch, now_ms, is_log_append_time)
    if largest != native.int_at(data, _MAX_TIME_AT, 8) or attributes & _APPEND_TIME:
        return place(view, next_offset, leader_epoch, largest, is_log_append_time)
    if native.is_readonly(view):
        view = memoryview(bytearray(view))
        data = native.bytes_of(view)
    last = next_offset + delta
    _put_place(data, next_offset, size, leader_epoch)
    return _summary(view, data, last, largest, _NONE)


def place_checked(
    checked: CheckedBatch, next_offset: int, leader_epoch: int, now_ms: int
) -> ValidatedBatch:
    """Give a batch that a worker has checked its place, as `validate` does with others."""
    view, largest, is_log_append_time = checked
    largest = now_ms if is_log_append_time else largest
    return place(view, next_offset, leader_epoch, largest, is_log_append_time)


def place(
    view: memoryview,
    next_offset: int,
    leader_epoch: int,
    largest: int,
    is_log_append_time: bool,  # noqa: FBT001 - on the hot path of topics with LogAppendTime
) -> ValidatedBatch:
    """Put offsets, leader epoch, timestamp type and largest timestamp into a batch's header."""
    if native.is_readonly(view):
        view = memoryview(bytearray(view))
    data = native.bytes_of(view)
    attributes = native.int_at(data, _ATTRIBUTES_AT, 2)
    last = next_offset + native.int_at(data, _COUNT_AT, 4) - 1
    base = last - native.int_at(data, _DELTA_AT, 4)
    _put_place(data, base, len(view), leader_epoch)
    has_append_time = attributes & _APPEND_TIME != 0
    if largest != native.int_at(data, _MAX_TIME_AT, 8) or has_append_time != is_log_append_time:
        flags = attributes & _KNOWN_FLAGS & ~_APPEND_TIME
        flags |= _APPEND_TIME if is_log_append_time else 0
        native.put_at(data, _ATTRIBUTES_AT, 2, flags)
        native.put_at(data, _MAX_TIME_AT, 8, largest)
        native.put_at(data, _CRC_AT, 4, crc32c(view[_ATTRIBUTES_AT:]))
    return _summary(view, data, last, largest, largest if is_log_append_time else _NONE)


def _put_place(data: Any, base_offset: int, size: int, leader_epoch: int) -> None:
    native.put_at(data, 0, 8, base_offset)
    native.put_at(data, _LENGTH_AT, 4, size - _OVERHEAD)
    native.put_at(data, _LEADER_EPOCH_AT, 4, leader_epoch)


def _summary(
    view: memoryview, data: Any, last: int, largest: int, append_time: int
) -> ValidatedBatch:
    """Return the fields of a placed batch that the log uses, from `data` and the arguments."""
    attributes, delta = native.int_at(data, _ATTRIBUTES_AT, 2), native.int_at(data, _DELTA_AT, 4)
    sequence = native.int_at(data, _SEQUENCE_AT, 4)
    summary: ValidatedBatch = native.new_tuple(
        ValidatedBatch,
        (
            last - delta,
            last,
            native.int_at(data, _PRODUCER_AT, 8),
            native.int_at(data, _EPOCH_AT, 2),
            sequence,
            _NONE if sequence < 0 else (sequence + delta) & _INT31,
            largest,
            attributes & _TRANSACTIONAL != 0,
            attributes & _CONTROL != 0,
            0,
            len(view),
            view,
            native.int_at(data, _COUNT_AT, 4),
            append_time,
        ),
    )
    return summary


def _records(view: memoryview, plain: memoryview) -> memoryview:
    """Return a batch's records, which `plain` holds when they were compressed."""
    return view[HEADER_BYTES:] if plain is view else plain


def _offload_when(
    is_large: bool,  # noqa: FBT001 - what the function is about
    view: memoryview,
    rules: ValidationRules,
    is_client: bool,  # noqa: FBT001 - positional like the rest
) -> None:
    """Raise OffloadRequired when a client sent too many records for the loop."""
    if is_large and is_client:
        raise OffloadRequired(view, rules)


def _rebuilt(
    view: memoryview,
    plain: memoryview,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    rules: ValidationRules,
    is_client: bool,  # noqa: FBT001 - positional like the rest
) -> memoryview:
    batch = RecordBatch(view)
    is_large = batch.record_count > _LOOP_VALIDATED_RECORDS or len(plain) > _LOOP_REBUILT_BYTES
    _offload_when(is_large, view, rules, is_client)
    codec = rules.compression_type
    if codec is None or (batch.is_control and not batch.attributes & COMPRESSION_MASK):
        codec = Compression(batch.attributes & COMPRESSION_MASK)
    return rebuild(
        batch,
        plain,
        next_offset=next_offset,
        leader_epoch=leader_epoch,
        now_ms=now_ms,
        rules=rules,
        codec=codec,
    )


def _few_pieces(count: int) -> None:
    if count > _LOOP_PIECES:
        raise DecompressionLimitExceeded(f"more than {_LOOP_PIECES} pieces")


def decompress_records(
    view: memoryview, codec: int, rules: ValidationRules, *, is_client: bool
) -> memoryview:
    """Return the records of a compressed batch, a client's no further than the loop has time for.

    INVALID_RECORD for what cannot be decompressed, OffloadRequired for a client's large batch.
    """
    limit = (
        min(LOOP_BYTES, rules.max_decompressed_bytes) if is_client else rules.max_decompressed_bytes
    )
    decompressor = Decompressor(_few_pieces) if is_client else Decompressor()
    try:
        plain = decompressor.decompress(Compression.from_id(codec), view[HEADER_BYTES:], limit)
    except CorruptMessage as error:
        raise invalid(error.message) from error
    except DecompressionLimitExceeded as error:
        if is_client and limit < rules.max_decompressed_bytes:
            raise OffloadRequired(view, rules) from error
        raise
    return memoryview(plain)
