"""Checks a batch that is about to be appended and gives it its offsets, in place where it can.

The way of a good batch is short: one unpack of the header, one checksum, one scan of the records,
one pack of base offset and epoch. Whatever is wrong is found again, slowly, to say it in Kafka's
words. What would take the caller's thread more than some ms (records that unfold far, or very many
that have to be looked at one by one) is not done here: `OffloadRequired` sends it to
`records/large_batches.py`, whose verdict then comes back as a `CheckedBatch`.

Five differences from Kafka, all towards refusing or mending what would stay broken in the
log: plain records whose offset deltas are not 0, 1, 2… are built anew, as Kafka does with
compressed ones; a compressed record must fill the length that it claims; records that do not
decompress are INVALID_RECORD, where Kafka says UNKNOWN_SERVER_ERROR; a record's
time beyond 64 bits is INVALID_TIMESTAMP, where Kafka lets it wrap around and takes what it then
is; and a batch may unfold to `max_plain_bytes` at most.

Hot path: `validate`. benchmarks/records.py.

Kafka: org.apache.kafka.storage.internals.log.LogValidator, UnifiedLog.analyzeAndValidateRecords.
"""

from __future__ import annotations

from enum import Enum
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    RecordBatch,
    TimestampType,
    claimed_bytes,
    iterate_batches,
)
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression, DecompressionLimitExceeded, Decompressor
from ottla.records.crc32c import crc32c
from ottla.records.scan import decode_records, outline_records, scan_records
from ottla.records.validation_rules import (
    NO_KEY,
    OffloadRequired,
    check_producer,
    check_rebuilt_size,
    invalid,
    out_of_sequence,
    refusal,
    time_range,
    timestamp_problem,
)

if TYPE_CHECKING:
    from ottla.records.validation_rules import CheckedBatch, ValidationRules
    from ottla.types import Buffer

_PLACE: Final = Struct(">qii")  # base offset, length, leader epoch
_ATTRIBUTES: Final = Struct(">h")
_TIMESTAMP: Final = Struct(">q")
_CRC: Final = Struct(">I")
LOOP_BYTES: Final = 1_048_588
"""Most bytes of records that a client's batch may have to be checked at once: 2 to 7 ms of work.

It is Kafka's default of max.message.bytes: a plain batch of that size never waits for a worker.
"""
_KNOWN_FLAGS: Final = 0x7F
_LOOP_REBUILT_BYTES: Final = 128 * 1024
_LOOP_JUDGED_RECORDS: Final = 2048
_LOOP_PIECES: Final = 512
_new_tuple: Final = tuple.__new__


class AppendOrigin(Enum):
    """Who appends: decides what is trusted."""

    REPLICATION = "REPLICATION"
    COORDINATOR = "COORDINATOR"
    CLIENT = "CLIENT"
    RAFT_LEADER = "RAFT_LEADER"


# looked up once: an enum's members are found slowly
_CLIENT: Final = AppendOrigin.CLIENT
_RAFT_LEADER: Final = AppendOrigin.RAFT_LEADER
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME


class BatchSummary(NamedTuple):
    """What the log notes of a batch; position (bytes) counts from the start of the buffers."""

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
    size: int


class ValidatedRecords(NamedTuple):
    """Batches as they go to the disk."""

    buffers: list[memoryview]
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    """Last offset of the batch that has it: what the time index notes."""
    log_append_time: int
    """-1 unless the topic is stamped by the broker."""
    record_count: int
    batches: list[BatchSummary]


class UnreadableRecords(KafkaError):
    """Bytes that are not one batch of format 2: refused before the log is asked."""


def _few_pieces(count: int) -> None:
    if count > _LOOP_PIECES:
        raise DecompressionLimitExceeded(f"more than {_LOOP_PIECES} pieces")


def validate(  # noqa: C901 - the steps of the hot path
    records: Buffer,
    *,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    rules: ValidationRules,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    decompressor: Decompressor | None = None,
) -> ValidatedRecords:
    """Check one batch against the rules and give it the offsets from next_offset on.

    A writable buffer is patched in place, of a read-only one a copy is made. The metadata
    leader's batches (any number) have offsets and epoch already and keep them. Raises
    RecordValidationError for records that break a rule; KafkaError INVALID_RECORD,
    MESSAGE_TOO_LARGE or CorruptMessage for the batch; TooMuchForTheLoop for a client's batch that
    has to go another way, by `check_large_batch` and `place_checked`.
    """
    view = records if type(records) is memoryview else memoryview(records)
    if origin is _RAFT_LEADER:
        return _accept_raft_batches(view, leader_epoch, rules)
    if len(view) < HEADER_BYTES:
        view = _only_batch(view, origin)
    header = HEADER.unpack_from(view, 0)
    if header[3] != 2 or header[1] + LOG_OVERHEAD_BYTES != len(view):
        view = _only_batch(view, origin)
        header = HEADER.unpack_from(view, 0)
    _check_header(view, header, rules, origin)
    attributes, count = header[5], header[12]
    codec = attributes & COMPRESSION_MASK
    plain, start = (
        (view, HEADER_BYTES)
        if not codec
        else unfold(view, codec, rules, decompressor, is_client=origin is _CLIENT)
    )
    end = len(plain)
    stamped = rules.timestamp_type is _LOG_APPEND_TIME
    earliest, latest = time_range(now_ms, rules)
    verdict, largest, _ = scan_records(
        plain, start, end, count, header[7], earliest, latest, rules.is_compacted
    )
    if verdict or attributes & LOG_APPEND_TIME_FLAG:
        _leave_to_worker_when(count > _LOOP_JUDGED_RECORDS, view, rules, origin)
        verdict, largest = _validate_each(RecordBatch(view), plain[start:end], now_ms, rules)
    if stamped:
        largest = now_ms
    target = rules.compression_type
    if target is None or target == codec or (not codec and attributes & CONTROL_FLAG):
        target = None
    if verdict and codec and target is None:
        raise out_of_sequence(rules)
    if verdict or target is not None:
        is_large = count > _LOOP_JUDGED_RECORDS or end > _LOOP_REBUILT_BYTES
        _leave_to_worker_when(is_large, view, rules, origin)
        codec = codec if target is None else target
        view = _rebuild(
            RecordBatch(view), plain[start:end], next_offset, leader_epoch, now_ms, rules, codec
        )
        header = HEADER.unpack_from(view, 0)
    else:
        if view.readonly:
            view = memoryview(bytearray(view))
        _PLACE.pack_into(view, 0, next_offset + count - 1 - header[6], header[1], leader_epoch)
        flags = attributes & ~LOG_APPEND_TIME_FLAG | (LOG_APPEND_TIME_FLAG if stamped else 0)
        if largest != header[8] or flags != attributes:
            _stamp(view, flags, largest)
    return _answer(view, header, next_offset, largest, now_ms if stamped else NO_TIMESTAMP)


def _leave_to_worker_when(
    is_large: bool,  # noqa: FBT001 - what the function is about
    view: memoryview,
    rules: ValidationRules,
    origin: AppendOrigin,
) -> None:
    """Do not look at records one by one here when a client sent too many of them."""
    if is_large and origin is _CLIENT:
        raise OffloadRequired(view, rules)


def place_checked(
    checked: CheckedBatch, next_offset: int, leader_epoch: int, now_ms: int
) -> ValidatedRecords:
    """Give a batch that a worker found good its place, as `validate` does with others."""
    view, largest, stamped = checked
    if view.readonly:
        view = memoryview(bytearray(view))
    header = HEADER.unpack_from(view, 0)
    largest = now_ms if stamped else largest
    _PLACE.pack_into(view, 0, next_offset + header[12] - 1 - header[6], header[1], leader_epoch)
    flags = header[5] & ~LOG_APPEND_TIME_FLAG | (LOG_APPEND_TIME_FLAG if stamped else 0)
    if largest != header[8] or flags != header[5]:
        _stamp(view, flags, largest)
    return _answer(view, header, next_offset, largest, now_ms if stamped else NO_TIMESTAMP)


def _check_header(
    view: memoryview, header: tuple[int, ...], rules: ValidationRules, origin: AppendOrigin
) -> None:
    """Refuse what the 61 bytes of header already tell, in Kafka's order."""
    by_client = origin is _CLIENT
    if header[0] and by_client:
        raise invalid(
            "The baseOffset of the record batch in the append to "
            f"{rules.topic_partition} should be 0, but it is {header[0]}"
        )
    if len(view) > rules.max_message_bytes:
        raise _too_large_on_arrival(len(view), rules)
    if crc32c(view[ATTRIBUTES_POSITION:]) != header[4]:
        raise CorruptMessage(
            f"Record is corrupt (stored crc = {header[4]}) in topic partition "
            f"{rules.topic_partition}."
        )
    if by_client and (
        header[6] < 0
        or header[12] != header[6] + 1
        or header[5] & CONTROL_FLAG
        or (header[9] >= 0 and header[11] < 0)
    ):
        _refuse_client_batch(RecordBatch(view), rules)
    if len(view) > LOOP_BYTES and by_client:
        raise OffloadRequired(view, rules)


def _stamp(view: memoryview, attributes: int, max_timestamp: int) -> None:
    """Put in the flags and the largest timestamp, with a new checksum."""
    _ATTRIBUTES.pack_into(view, ATTRIBUTES_POSITION, attributes & _KNOWN_FLAGS)
    _TIMESTAMP.pack_into(view, MAX_TIMESTAMP_POSITION, max_timestamp)
    _CRC.pack_into(view, CRC_POSITION, crc32c(view[ATTRIBUTES_POSITION:]))


def _answer(
    view: memoryview, header: tuple[int, ...], next_offset: int, largest: int, append_time: int
) -> ValidatedRecords:
    count, base_sequence = header[12], header[11]
    last_offset = next_offset + count - 1
    # a named tuple's own constructor is a Python function, and costs as much as the scan
    summary: BatchSummary = _new_tuple(
        BatchSummary,
        (
            last_offset - header[6],
            last_offset,
            header[9],
            header[10],
            base_sequence,
            -1 if base_sequence < 0 else (base_sequence + header[6]) & 0x7FFF_FFFF,
            largest,
            header[5] & TRANSACTIONAL_FLAG != 0,
            header[5] & CONTROL_FLAG != 0,
            0,
            len(view),
        ),
    )
    return _new_tuple(
        ValidatedRecords,
        (
            [view],
            next_offset,
            last_offset,
            largest,
            last_offset,
            append_time,
            count,
            [summary],
        ),
    )


def _too_large_on_arrival(size: int, rules: ValidationRules) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size in the append to {rules.topic_partition} is {size} bytes "
        f"which exceeds the maximum configured value of {rules.max_message_bytes}).",
    )


def _only_batch(view: memoryview, origin: AppendOrigin) -> memoryview:
    """Return the one batch of format 2 in view, less bytes behind it that are no whole batch."""
    if origin is _CLIENT:
        return _only_clients_batch(view)
    batches = list(islice(iterate_batches(view, partial_tail=True), 2))
    if any(batch.magic != 2 for batch in batches):
        raise UnreadableRecords(ErrorCode.INVALID_RECORD)
    if len(batches) != 1:
        raise invalid(
            "Compressed outer record has more than one batch"
            if batches
            else "Record batch has no batches at all"
        )
    return batches[0].buffer


def _only_clients_batch(view: memoryview) -> memoryview:
    """Do so with what Kafka tells clients, which looks at this before all else.

    Only what is wrong with the first length or magic is said in words.
    """
    try:
        size = claimed_bytes(view, 0)
    except CorruptMessage as error:
        raise UnreadableRecords(error.code, error.message) from error
    if size > len(view) or view[MAGIC_POSITION] != 2:
        raise UnreadableRecords(ErrorCode.INVALID_RECORD)
    try:
        is_alone = size + claimed_bytes(view, size) > len(view)
    except CorruptMessage as error:
        raise UnreadableRecords(error.code) from error
    if not is_alone:
        raise UnreadableRecords(ErrorCode.INVALID_RECORD)
    if size < HEADER_BYTES:
        raise UnreadableRecords(ErrorCode.CORRUPT_MESSAGE)
    return view[:size]


def _refuse_client_batch(batch: RecordBatch, rules: ValidationRules) -> None:
    """Say what a client's batch header has that clients may not write."""
    where = f"in topic partition {rules.topic_partition}"
    if batch.last_offset_delta < 0:
        raise invalid(
            f"Batch has an invalid offset range: [{batch.base_offset}, {batch.last_offset}] {where}"
        )
    if batch.record_count <= 0:
        raise invalid(f"Invalid reported count for record batch: {batch.record_count} {where}")
    if batch.record_count != batch.last_offset_delta + 1:
        raise invalid(
            f"Inconsistent batch offset range [{batch.base_offset}, {batch.last_offset}] "
            f"and count of records {batch.record_count} {where}"
        )
    if batch.is_control:
        raise invalid(f"Clients are not allowed to write control records {where}")
    raise invalid(
        f"Invalid sequence number {batch.base_sequence} in record batch with producerId "
        f"{batch.producer_id} {where}"
    )


def unfold(
    view: memoryview,
    codec: int,
    rules: ValidationRules,
    decompressor: Decompressor | None,
    *,
    is_client: bool,
) -> tuple[memoryview, int]:
    """Decompress the records, a client's no further than the loop has time for.

    Returns them with where they start.
    """
    limit = min(LOOP_BYTES, rules.max_plain_bytes) if is_client else rules.max_plain_bytes
    if decompressor is None:
        decompressor = Decompressor(_few_pieces) if is_client else Decompressor()
    try:
        plain = decompressor.decompress(Compression.from_id(codec), view[HEADER_BYTES:], limit)
    except CorruptMessage as error:
        raise invalid(error.message) from error
    except DecompressionLimitExceeded as error:
        if is_client and limit < rules.max_plain_bytes:
            raise OffloadRequired(view, rules) from error
        raise
    return memoryview(plain), 0


def _validate_each(
    batch: RecordBatch, plain: memoryview, now_ms: int, rules: ValidationRules
) -> tuple[bool, int]:
    """Look at every record again; return whether offsets must be mended, and the largest time.

    Raises what the records deserve, in Kafka's words.
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


def _rebuild(
    batch: RecordBatch,
    plain: memoryview,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    rules: ValidationRules,
    codec: int,
) -> memoryview:
    """Build the batch anew: in the topic's codec, with offsets one after another."""
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


def _accept_raft_batches(
    view: memoryview, leader_epoch: int, rules: ValidationRules
) -> ValidatedRecords:
    """Take the metadata leader's batches as they are: it gave them offsets and epoch itself."""
    batches = []
    largest, offset_of_largest, count = NO_TIMESTAMP, -1, 0
    for batch in iterate_batches(view):
        if batch.leader_epoch != leader_epoch:
            raise invalid(
                "Append from Raft leader did not set the batch epoch correctly, expected "
                f"{leader_epoch} but the batch has {batch.leader_epoch}"
            )
        if batch.size > rules.max_message_bytes:
            raise _too_large_on_arrival(batch.size, rules)
        batch.check_crc()
        if batch.max_timestamp > largest:
            largest, offset_of_largest = batch.max_timestamp, batch.last_offset
        count += batch.record_count
        batches.append(summarize(batch))
    if not batches:
        raise invalid("Record batch has no batches at all")
    return ValidatedRecords(
        [view],
        batches[0].base_offset,
        batches[-1].last_offset,
        largest,
        offset_of_largest,
        NO_TIMESTAMP,
        count,
        batches,
    )


def summarize(batch: RecordBatch) -> BatchSummary:
    """Return what the log notes of a batch, at its place in the view."""
    return BatchSummary(
        batch.base_offset,
        batch.last_offset,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.last_sequence,
        batch.max_timestamp,
        batch.is_transactional,
        batch.is_control,
        batch.position,
        batch.size,
    )
