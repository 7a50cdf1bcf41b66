"""Checks a client's batch whose records are too many for the loop, as a stream and within limits.

It runs on another thread, which shares the interpreter's lock: no single step takes it for more
than some ms, whatever the records are, and the deadline is checked between two steps. Records
are decompressed in chunks (`records/codec_streams.py`) and checked across them
(`records/record_stream.py`), and compressed again in the same pass where the topic has another
codec, so that neither their bytes nor their number decide how much memory it takes.

Records are refused for the same reasons as in `records/validator.py`. Differences: at most 1,000
records are named in the answer, a record may have a million headers, and a rebuilt batch keeps
its base timestamp.

Kafka: none; its request handler threads do this with any batch, without a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage, ErrorCode
from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    RecordBatch,
    TimestampType,
)
from ottla.records.builder import assemble_batch, attributes_of
from ottla.records.codec_streams import CompressedStream, decompressed_chunks, working_bytes
from ottla.records.compression import Compression, DecompressionLimitExceeded
from ottla.records.record_stream import RecordRun, RecordStream
from ottla.records.scan import append_renumbered, outline_records, scan_records
from ottla.records.validation_rules import (
    NO_KEY,
    CheckedBatch,
    check_producer,
    check_rebuilt_size,
    invalid,
    out_of_sequence,
    refusal,
    time_range,
    timestamp_problem,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.records.validation_rules import OffloadRequired

MAX_NAMED_RECORDS: Final = 1000
# As in scan.py, whose constants are C's where it is compiled.
_MALFORMED: Final = 1
_NOT_CONSECUTIVE: Final = 2
_MIB: Final = 1024 * 1024
_COMPRESSOR_BYTES: Final = 8 * _MIB
"""What zstd's compressor takes at its default level, the others less."""


class DecompressionLimits(NamedTuple):
    """Limits of the work for one batch."""

    max_bytes: int
    """Decompressed bytes of its records."""
    max_cpu_ms: int
    """Time of the processor on the thread that checks it."""
    max_working_bytes: int = 16 * _MIB
    """Memory for the window of its codec."""


def memory_bytes(large: OffloadRequired, limits: DecompressionLimits) -> int:
    """Return the memory that `check_large_batch` takes, besides the batch and what it becomes."""
    codec = large.view[ATTRIBUTES_POSITION + 1] & COMPRESSION_MASK
    if codec > Compression.ZSTD:
        return 0
    data = large.view[HEADER_BYTES:]
    needed = working_bytes(Compression(codec), data, limits.max_working_bytes)
    target = large.rules.compression_type
    if target not in {None, codec}:
        needed += _COMPRESSOR_BYTES
    return needed


def check_large_batch(
    large: OffloadRequired, *, now_ms: int, limits: DecompressionLimits, cpu_s: Callable[[], float]
) -> CheckedBatch:
    """Check the records of a batch whose header is good; `cpu_s` is the thread's own time.

    Raises DecompressionLimitExceeded (INVALID_RECORD) when it costs more than the limits, and what
    `validate` raises for records.
    """
    return _Check(large, now_ms, limits, cpu_s).run()


class _Check:
    """The check of one batch."""

    def __init__(
        self,
        large: OffloadRequired,
        now_ms: int,
        limits: DecompressionLimits,
        cpu_s: Callable[[], float],
    ) -> None:
        self._view = large.view
        self._rules = rules = large.rules
        self._now_ms = now_ms
        self._header = HEADER.unpack_from(large.view, 0)
        self._limits = limits
        self._cpu_s = cpu_s
        self._deadline_s = cpu_s() + limits.max_cpu_ms / 1000
        attributes = self._header[5]
        self._codec = attributes & COMPRESSION_MASK
        target = rules.compression_type
        if target is None or (not self._codec and attributes & CONTROL_FLAG):
            target = Compression(self._codec) if self._codec <= Compression.ZSTD else None
        self._target = target
        self._earliest, self._latest = time_range(now_ms, rules)
        self._has_append_time = bool(attributes & LOG_APPEND_TIME_FLAG)
        self._is_partial = bool(self._codec) and target == self._codec
        self._code = ErrorCode.INVALID_RECORD
        self._errors: list[tuple[int, str]] = []
        self._error_count = 0
        self._largest = NO_TIMESTAMP
        self._in_sequence = True

    def run(self) -> CheckedBatch:
        """Check the records, and build the batch again where the topic keeps it otherwise."""
        output = None if self._target == self._codec else self._new_output()
        self._read(output)
        if self._errors:
            raise refusal(self._code, self._errors, self._error_count)
        if not self._in_sequence and self._target == self._codec:
            if self._codec:
                raise out_of_sequence(self._rules)
            output = self._new_output()
            self._read(output)
        view = self._view if output is None else self._rebuilt(output)
        is_log_append_time = self._rules.timestamp_type is TimestampType.LOG_APPEND_TIME
        return CheckedBatch(view, self._largest, is_log_append_time)

    def _new_output(self) -> CompressedStream:
        rules = self._rules
        assert self._target is not None
        room = rules.max_message_bytes - HEADER_BYTES
        return CompressedStream(self._target, rules.compression_level, room)

    def _check_deadline(self, _pieces: int = 0) -> None:
        if self._cpu_s() > self._deadline_s:
            raise DecompressionLimitExceeded(
                "The records of a batch take more than "
                f"{self._limits.max_cpu_ms} ms of time to check."
            )

    def _read(self, output: CompressedStream | None) -> None:
        """Check all records and write them to output."""
        try:
            records = RecordStream(
                self._chunks(),
                self._header[12],
                self._check_deadline,
                None if output is None else output.write,
            )
            for record in records:
                if isinstance(record, RecordRun):
                    self._check_run(record, output)
                else:
                    self._check_record(*record)
        except CorruptMessage as error:
            raise invalid(error.message) from error

    def _chunks(self) -> Iterator[memoryview]:
        limits = self._limits
        return decompressed_chunks(
            Compression.from_id(self._codec),
            self._view[HEADER_BYTES:],
            limits.max_bytes if self._codec else len(self._view),
            limits.max_working_bytes,
            self._check_deadline,
        )

    def _check_run(self, run: RecordRun, output: CompressedStream | None) -> None:
        first_index, count, view, start, end = run
        flags, largest, _ = scan_records(
            view,
            start,
            end,
            count,
            self._header[7],
            self._earliest,
            self._latest,
            self._rules.is_compacted,
            first_index,
        )
        if flags & _NOT_CONSECUTIVE:
            self._in_sequence = False
        if flags & ~_NOT_CONSECUTIVE or self._has_append_time:
            error_count = self._error_count
            for index, outline in enumerate(
                outline_records(view, start, end, first_index, count), first_index
            ):
                self._check_record(index, *outline)
            if flags & _MALFORMED and error_count == self._error_count:
                raise invalid()
        else:
            self._largest = max(self._largest, largest)
        if output is None or self._error_count:
            return
        if flags & _NOT_CONSECUTIVE:
            numbered = bytearray()
            append_renumbered(numbered, view, start, first_index, count)
            output.write(numbered)
        else:
            output.write(view[start:end])

    def _check_record(
        self, index: int, offset: int, delta: int, key_size: int, value_size: int
    ) -> None:
        """Check one record by its sizes and timestamps and record its error."""
        rules = self._rules
        timestamp = self._header[8] if self._has_append_time else self._header[7] + delta
        self._in_sequence = self._in_sequence and offset == index
        self._largest = max(self._largest, timestamp)
        if rules.is_compacted and key_size < 0:
            problem: str | None = f"{NO_KEY} {rules.topic_partition}"
        else:
            problem = timestamp_problem(
                (offset, timestamp, max(key_size, 0), max(value_size, 0)),
                self._now_ms,
                rules,
                appended=self._has_append_time,
                is_partial=self._is_partial,
            )
            if problem is not None:
                self._code = ErrorCode.INVALID_TIMESTAMP
        if problem is not None:
            self._error_count += 1
            if self._error_count <= MAX_NAMED_RECORDS:
                self._errors.append((index, problem))

    def _rebuilt(self, output: CompressedStream) -> memoryview:
        """Return the batch around the records that were written to output."""
        batch = RecordBatch(self._view)
        check_producer(batch)
        packed = output.finish()
        check_rebuilt_size(HEADER_BYTES + output.size, self._rules)
        assert self._target is not None
        built = assemble_batch(
            packed,
            attributes=attributes_of(
                self._target, TimestampType.CREATE_TIME, transactional=batch.is_transactional
            ),
            record_count=batch.record_count,
            last_offset_delta=batch.record_count - 1,
            base_timestamp=batch.base_timestamp,
            max_timestamp=self._largest,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
        )
        return memoryview(built)
