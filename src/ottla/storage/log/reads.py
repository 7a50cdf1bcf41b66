"""Reads of a log: batches from an offset on, as slices of files, and offsets by time.

Hot path: `LogReads.find` (benchmarks/log.py).
Kafka: UnifiedLog.{read, fetchOffsetByTimestamp}, LocalLog.read.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.storage.log.append_info import FetchData, FetchIsolation, OffsetMovedToTier
from ottla.storage.log.timestamps import offset_for_timestamp
from ottla.types import FileSlice

if TYPE_CHECKING:
    from typing import TypeAlias

    from ottla.storage.indexes.transaction_index import AbortedTransaction
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log.timestamps import TimestampAndOffset

    Found: TypeAlias = tuple[FileSlice | bytes, list[AbortedTransaction] | None]

NO_DATA = b""
# looked up once: an enum's members are found slowly
_LOG_END: Final = FetchIsolation.LOG_END
_HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK
_new_tuple = tuple.__new__  # a named tuple's own constructor is a Python function


class LogReads:
    """Reads of one log."""

    __slots__ = ("_log",)

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """Return the first record at or after timestamp, or one of ListOffsets' special ones.

        KAFKA_STORAGE_ERROR when the disk fails, CorruptMessage for what cannot be read.
        """
        try:
            return offset_for_timestamp(self._log, timestamp)
        except OSError as error:
            raise self._log.storage_error("searching", error) from error

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: FetchIsolation = _LOG_END,
        *,
        min_one_message: bool = True,
    ) -> FetchData:
        """Return batches from the one that holds offset on, as a slice of the file; see `find`."""
        records, aborted = self.find(offset, max_bytes, isolation, min_one_message)
        return FetchData(records, offset, aborted)

    def find(
        self,
        offset: int,
        max_bytes: int,
        isolation: FetchIsolation,
        min_one_message: bool,  # noqa: FBT001 - keywords cost much per call
    ) -> Found:
        """Return batches from the one that holds offset on, as a slice of the file.

        OFFSET_OUT_OF_RANGE below the start or above the end, UNKNOWN_SERVER_ERROR for data of
        negative size, as Kafka; OffsetMovedToTier where only remote storage has the offset;
        nothing at or after the limit that the isolation sets. With
        min_one_message the first batch comes whole, however large; without it there is nothing if
        the first batch does not fit. Later ones may be cut. With TXN_COMMITTED also the aborted
        transactions that a consumer must filter.
        """
        log = self._log
        is_filtered = False
        if isolation is _HIGH_WATERMARK:
            limit = log.high_watermark
        elif isolation is _LOG_END:
            limit = log.log_end_offset
        else:
            is_filtered = True
            limit = log.last_stable_offset
        if offset > log.log_end_offset or offset < log.log_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {log.topic_partition}, but "
                f"we only have log segments from offset {log.log_start_offset} to "
                f"{log.log_end_offset}.",
            )
        if offset >= limit:
            return NO_DATA, [] if is_filtered else None
        if max_bytes < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Invalid max size {max_bytes}")
        bases = log.readable.base_offsets
        number = bisect_right(bases, offset) - 1
        if number < 0:
            raise OffsetMovedToTier(offset, max_bytes, min_one_message=min_one_message)
        while number < len(bases):
            found = self._read_segment(number, offset, limit, max_bytes, min_one_message)
            if found is not None:
                if not is_filtered or (found is NO_DATA and max_bytes > 0):
                    # also for a batch that does not fit: no aborts either
                    return found, None
                return found, self._aborted(number, offset, limit, found)
            number += 1
        return NO_DATA, None

    def _aborted(
        self, number: int, offset: int, limit: int, found: FileSlice | bytes
    ) -> list[AbortedTransaction]:
        try:
            if isinstance(found, FileSlice):
                index = self._log.readable.ordered[number].offset_index
                with suppress(CorruptMessage):  # then those of the whole segment
                    limit = min(limit, index.offset_from(found.position + found.size, limit))
            return aborted_transactions(self._log, number, offset, limit)
        except OSError as error:
            raise self._log.storage_error("reading the aborts of", error) from error

    def _read_segment(
        self,
        number: int,
        offset: int,
        limit: int,
        max_bytes: int,
        min_one_message: bool,  # noqa: FBT001 - see above
    ) -> FileSlice | bytes | None:
        log = self._log
        segments = log.readable
        segment = segments.ordered[number]
        try:
            place = segment.place_of(offset)
            if place is None:
                return None
            start, first_bytes = place
            end = segment.size
            number += 1
            bases = segments.base_offsets
            if limit < (bases[number] if number < len(bases) else log.log_end_offset):
                limit_position = segment.position_of(limit)
                end = segment.size if limit_position is None else limit_position
            if end - start > max_bytes:
                if not min_one_message and first_bytes > max_bytes:
                    return NO_DATA  # clients take a part of a batch for a record too large
                end = start + max(max_bytes, first_bytes)
        except OSError as error:
            raise log.storage_error("reading", error) from error
        if end <= start:
            return NO_DATA
        found: FileSlice = _new_tuple(FileSlice, (segment.file, start, end - start))
        return found


def aborted_transactions(
    log: PartitionLog, segment_number: int, fetch_offset: int, limit: int
) -> list[AbortedTransaction]:
    """Return those that overlap [fetch_offset, the end of the segment read or the limit).

    Kafka: LocalLog.addAbortedTransactions, TransactionIndex.collectAbortedTxns.
    """
    segments = log.readable
    upper = min(limit, segments.end_of(segment_number, log.log_end_offset))
    found: list[AbortedTransaction] = []
    ordered = segments.ordered
    for number in range(segment_number, len(ordered)):
        index = ordered[number].transaction_index
        found += index.overlapping(fetch_offset, upper)
        if not index.is_followed_below(upper):
            break
    return found
