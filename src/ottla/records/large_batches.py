"""Checks a client's batch whose records are too many for the loop, in slices and within limits.

It runs on another thread, which shares the interpreter's lock: no single step takes it for more
than some ms, whatever the records are, and between two steps the time spent is looked at. Nothing
is decoded as a whole, so memory stays below a few times the limit of bytes.

Records are refused for the same reasons as in `records/validator.py`. Differences: at most 1,000
records are named in the answer, a record may have a million headers, and a batch built anew keeps
its base timestamp.

Kafka: none; its request handler threads do this with any batch, without a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage, ErrorCode
from ottla.records.batch import (
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
from ottla.records.compression import (
    Compression,
    DecompressionLimitExceeded,
    Decompressor,
    compress_in_slices,
)
from ottla.records.scan import append_renumbered, outline_records, scan_records, slice_end
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
    from ottla.types import Buffer

MAX_NAMED_RECORDS: Final = 1000
_SCANNED_RECORDS: Final = 32 * 1024
_LOOKED_AT_RECORDS: Final = 4 * 1024
_SLICE_BYTES: Final = 1024 * 1024
_MALFORMED: Final = 1


class DecompressionLimits(NamedTuple):
    """What one batch may cost."""

    max_bytes: int
    """Bytes of its records when they are plain."""
    max_cpu_ms: int
    """Time of the processor on the thread that checks it."""


class _Slice(NamedTuple):
    """Some records of a batch, one after another."""

    first_index: int
    record_count: int
    start: int
    end: int


def check_large_batch(
    large: OffloadRequired, *, now_ms: int, limits: DecompressionLimits, cpu_s: Callable[[], float]
) -> CheckedBatch:
    """Check the records of a batch whose header is good; `cpu_s` is the thread's own time.

    Raises UnfoldsTooFar (INVALID_RECORD) when it costs more than the limits, and what `validate`
    raises for records.
    """
    return _Check(large, now_ms, limits, cpu_s).run()


class _Check:
    """One batch under way."""

    def __init__(
        self,
        large: OffloadRequired,
        now_ms: int,
        limits: DecompressionLimits,
        cpu_s: Callable[[], float],
    ) -> None:
        self._view = large.view
        self._rules = large.rules
        self._now_ms = now_ms
        self._header = HEADER.unpack_from(large.view, 0)
        self._limits = limits
        self._cpu_s = cpu_s
        self._deadline_s = cpu_s() + limits.max_cpu_ms / 1000
        self._plain = large.view
        self._start = HEADER_BYTES

    def run(self) -> CheckedBatch:
        attributes, rules = self._header[5], self._rules
        codec = attributes & COMPRESSION_MASK
        self._unfold(codec)
        verdict, largest = self._scan()
        renumber = False
        if verdict or attributes & LOG_APPEND_TIME_FLAG:
            renumber, largest = self._validate()
            if verdict & _MALFORMED:
                raise invalid()
        target = rules.compression_type
        if target is None or (not codec and attributes & CONTROL_FLAG):
            target = Compression(codec)
        if renumber and codec and target == codec:
            raise out_of_sequence(rules)
        view = self._view
        if renumber or target != codec:
            view = self._rebuild(Compression(target), largest, renumber=renumber)
        stamped = rules.timestamp_type is TimestampType.LOG_APPEND_TIME
        return CheckedBatch(view, largest, stamped)

    def _look_at_the_time(self, _pieces: int = 0) -> None:
        if self._cpu_s() > self._deadline_s:
            raise DecompressionLimitExceeded(
                "The records of a batch take more than "
                f"{self._limits.max_cpu_ms} ms of time to check."
            )

    def _unfold(self, codec: int) -> None:
        max_bytes = self._limits.max_bytes
        if not codec:
            return
        try:
            plain = Decompressor(self._look_at_the_time).decompress(
                Compression.from_id(codec), self._view[HEADER_BYTES:], max_bytes
            )
        except CorruptMessage as error:
            raise invalid(error.message) from error
        self._look_at_the_time()
        self._plain, self._start = memoryview(plain), 0

    def _slices(self, max_records: int) -> Iterator[_Slice]:
        """Cut the records into slices; stops where the lengths make no sense."""
        index, position = 0, self._start
        count = self._header[12]
        while index < count:
            wanted = min(max_records, count - index)
            found, end = slice_end(self._plain, position, wanted, _SLICE_BYTES)
            if not found:
                return
            yield _Slice(index, found, position, end)
            self._look_at_the_time()
            index, position = index + found, end

    def _scan(self) -> tuple[int, int]:
        """Return what `scan_records` says of all records: flags, and the largest timestamp."""
        rules, header, plain = self._rules, self._header, self._plain
        earliest, latest = time_range(self._now_ms, rules)
        verdict, largest, position, left = 0, NO_TIMESTAMP, self._start, header[12]
        for one in self._slices(_SCANNED_RECORDS):
            found, latest_here, _ = scan_records(
                plain,
                one.start,
                one.end,
                one.record_count,
                header[7],
                earliest,
                latest,
                rules.is_compacted,
                one.first_index,
            )
            verdict |= found
            largest = max(largest, latest_here)
            position, left = one.end, left - one.record_count
        if left or position != len(plain):
            verdict |= _MALFORMED
        return verdict, largest

    def _validate(self) -> tuple[bool, int]:
        """Look at the records one by one; whether offsets must be mended, and the largest time."""
        appended = bool(self._header[5] & LOG_APPEND_TIME_FLAG)
        codec = self._header[5] & COMPRESSION_MASK
        is_partial = bool(codec) and self._rules.compression_type in {None, codec}
        base_timestamp, max_timestamp = self._header[7], self._header[8]
        code, errors, error_count = ErrorCode.INVALID_RECORD, [], 0
        renumber, largest = False, NO_TIMESTAMP
        for one in self._slices(_LOOKED_AT_RECORDS):
            for index, outline in enumerate(self._outlines(one), one.first_index):
                offset, delta, key_size, value_size = outline
                timestamp = max_timestamp if appended else base_timestamp + delta
                renumber = renumber or offset != index
                largest = max(largest, timestamp)
                if self._rules.is_compacted and key_size < 0:
                    problem: str | None = f"{NO_KEY} {self._rules.topic_partition}"
                else:
                    sizes = max(key_size, 0), max(value_size, 0)
                    problem = timestamp_problem(
                        (offset, timestamp, *sizes),
                        self._now_ms,
                        self._rules,
                        appended=appended,
                        is_partial=is_partial,
                    )
                    code = code if problem is None else ErrorCode.INVALID_TIMESTAMP
                if problem is not None:
                    error_count += 1
                    if error_count <= MAX_NAMED_RECORDS:
                        errors.append((index, problem))
        if errors:
            raise refusal(code, errors, error_count)
        return renumber, largest

    def _outlines(self, one: _Slice) -> list[tuple[int, int, int, int]]:
        try:
            return outline_records(
                self._plain, one.start, one.end, one.first_index, one.record_count
            )
        except CorruptMessage as error:
            raise invalid(error.message) from error

    def _rebuild(self, codec: Compression, largest: int, *, renumber: bool) -> memoryview:
        """Return the batch in another codec, or with offsets one after another."""
        batch = RecordBatch(self._view)
        check_producer(batch)
        payload: Buffer = self._plain[self._start :]
        if renumber:
            payload = bytearray()
            for one in self._slices(_LOOKED_AT_RECORDS):
                append_renumbered(
                    payload, self._plain, one.start, one.first_index, one.record_count
                )
        packed = compress_in_slices(
            codec, payload, self._rules.compression_level, self._look_at_the_time
        )
        check_rebuilt_size(HEADER_BYTES + len(packed), self._rules)
        built = assemble_batch(
            packed,
            attributes=attributes_of(
                codec, TimestampType.CREATE_TIME, transactional=batch.is_transactional
            ),
            record_count=batch.record_count,
            last_offset_delta=batch.record_count - 1,
            base_timestamp=batch.base_timestamp,
            max_timestamp=largest,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
        )
        return memoryview(built)
