"""The log of one partition: append, read, roll, truncate; pure over a Directory.

It never looks at a clock and never waits for an fsync: time is an argument and `start_flush`
hands out the work. One thread owns it. When a write fails the torn tail is cut; when that fails
too, or what lies on disk is no longer what memory says, the log is fenced: it refuses appends
until it is opened anew.

Hot path: `append_as_leader`, `append_as_follower` and `read` (benchmarks/log.py).
Kafka: org.apache.kafka.storage.internals.log.{UnifiedLog, LocalLog}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.crc32c import crc32c
from ottla.records.validation_rules import CheckedBatch
from ottla.records.validator import AppendOrigin, place_checked, validate
from ottla.storage.batches import scan_batches
from ottla.storage.indexes.transaction_index import AbortedTransaction
from ottla.storage.log.aborted import aborted_transactions
from ottla.storage.log.append_info import (
    AppendInfo,
    FetchData,
    FetchIsolation,
    UnexpectedAppendOffset,
)
from ottla.storage.log.leader_epochs import UNDEFINED_EPOCH
from ottla.storage.log.plain_append import PlainAppends
from ottla.storage.log.recovery import LogLoader
from ottla.storage.log.timestamps import offset_for_timestamp
from ottla.storage.producers.append import TRANSACTION_VERSION_UNKNOWN
from ottla.storage.producers.update import has_producers, validate_producers
from ottla.types import FileSlice, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.records.validator import BatchSummary, ValidatedRecords
    from ottla.storage.batches import BatchHeader
    from ottla.storage.directory import Directory
    from ottla.storage.log.config import LogConfig
    from ottla.storage.log.timestamps import TimestampAndOffset
    from ottla.storage.producers.append import CompletedTransaction, Verification
    from ottla.storage.producers.update import ProducerAppends
    from ottla.storage.segments.segment import Segment
    from ottla.types import Buffer

NO_DATA = b""
_CRC_START = 21


class PartitionLog(PlainAppends):
    """One partition's log; made by `open`. Offsets: start <= LSO <= HW <= end."""

    @classmethod
    def open(  # noqa: PLR0913 - each is a fact about the log that only the caller knows
        cls,
        directory: Directory,
        name: str,
        *,
        config: LogConfig,
        now_ms: int,
        topic_partition: TopicPartition | None = None,
        topic_id: Uuid | None = None,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
    ) -> PartitionLog:
        """Open the directory `name`, made when missing; recover it unless it was closed cleanly.

        OSError when the disk fails. topic_id is written down when the directory is new.
        """
        topic_partition = topic_partition or parse_partition_name(name)
        if not directory.exists(name):
            directory.make(name)
        loaded = LogLoader(
            directory, name, partition=str(topic_partition), config=config, now_ms=now_ms
        ).load(recovery_point=recovery_point, log_start_offset=log_start_offset, clean=clean)
        log = cls(
            directory,
            name,
            topic_partition=topic_partition,
            topic_id=topic_id,
            config=config,
            loaded=loaded,
        )
        log._last_flush_ms = now_ms
        log._write_partition_metadata()
        return log

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.name}, start={self.log_start_offset}, "
            f"hw={self.high_watermark}, end={self.log_end_offset})"
        )

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """Return the first record at or after timestamp, or one of ListOffsets' special ones.

        KAFKA_STORAGE_ERROR when the disk fails, CorruptMessage for what cannot be read.
        """
        try:
            return offset_for_timestamp(self, timestamp)
        except OSError as error:
            raise self._storage_error("searching", error) from error

    # Appends

    def append_as_leader(
        self,
        records: memoryview | CheckedBatch,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: Verification | None = None,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> AppendInfo:
        """Validate, give offsets to and write batches; `records` is patched in place.

        RecordValidationError or KafkaError with the producer's code when they are refused,
        KAFKA_STORAGE_ERROR (caused by an OSError) when the disk fails; TooMuchForTheLoop for a
        client's batch that has to be checked elsewhere and to come back as a CheckedBatch. A
        duplicate of one of the producer's last five batches is not written and answered with the
        old offsets.
        """
        if type(records) is memoryview and origin is AppendOrigin.CLIENT and verification is None:
            plain = self.append_plain(records, leader_epoch, now_ms)
            if plain is not None:
                return plain
        if self.failure is not None or self.is_deleted:
            self._refuse()
        validated = self._validated(records, leader_epoch, now_ms, origin)
        batches, buffers = validated.batches, validated.buffers
        producer_appends = None
        if has_producers(batches):
            producer_appends = validate_producers(
                self.producer_state,
                batches,
                lambda batch: _slice(buffers, batch.position, batch.size),
                origin=origin,
                verification=verification,
                verification_required=self.config.transaction_partition_verification_enable,
                transaction_version=transaction_version,
            )
            if producer_appends.duplicate is not None:
                return self._duplicate(producer_appends)
        info = AppendInfo(
            validated.first_offset,
            validated.last_offset,
            validated.max_timestamp,
            validated.log_append_time,
            self.log_start_offset,
            validated.record_count,
            sum(map(len, buffers)),
        )
        self._append(buffers, batches, info, producer_appends, now_ms)
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.on_flush_overdue(self)
        if leader_epoch != self.leader_epochs.latest_epoch and leader_epoch >= 0:
            self.assign_epoch(leader_epoch, info.first_offset)
        return info

    def _validated(
        self,
        records: memoryview | CheckedBatch,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin,
    ) -> ValidatedRecords:
        if isinstance(records, CheckedBatch):
            return place_checked(records, self.log_end_offset, leader_epoch, now_ms)
        return validate(
            records,
            next_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            rules=self._rules,
            origin=origin,
        )

    def _duplicate(self, producer_appends: ProducerAppends) -> AppendInfo:
        old = producer_appends.duplicate
        assert old is not None
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.on_flush_overdue(self)  # the first answer may not have left either
        return AppendInfo(
            old.base_offset,
            old.last_offset,
            old.timestamp,
            old.timestamp,
            self.log_start_offset,
            is_duplicate=True,
        )

    def append_as_follower(
        self, records: Buffer, *, leader_epoch: int, now_ms: int
    ) -> AppendInfo | None:
        """Write batches as the leader wrote them; None when there is nothing to write.

        Batches of an epoch above `leader_epoch` and what follows them are left out. CorruptMessage
        for wrong checksums or offsets, UnexpectedAppendOffset for batches below the end.
        """
        if self.failure is not None or self.is_deleted:
            self._refuse()
        view = memoryview(records)
        batches = self._follower_batches(view, leader_epoch)
        if not batches:
            return None
        first, last = batches[0], batches[-1]
        if first.base_offset < self.log_end_offset:
            raise UnexpectedAppendOffset(
                f"Unexpected offset in append to {self.topic_partition}. First offset "
                f"{first.base_offset} is less than the next offset {self.log_end_offset}. "
                f"Log start offset = {self.log_start_offset}",
                first_offset=first.base_offset,
                last_offset=last.last_offset,
            )
        producer_appends = None
        if has_producers(batches):
            producer_appends = validate_producers(
                self.producer_state,
                batches,
                lambda batch: view[batch.position : batch.position + batch.size],
                origin=AppendOrigin.REPLICATION,
            )
        size = last.position + last.size
        info = AppendInfo(
            first.base_offset,
            last.last_offset,
            max(batch.max_timestamp for batch in batches),
            -1,
            self.log_start_offset,
            sum(max(batch.record_count, 1) for batch in batches),
            size,
        )
        self._append([view[:size]], batches, info, producer_appends, now_ms)
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.on_flush_requested(self)
        latest = self.leader_epochs.latest_epoch
        for batch in batches:
            if batch.leader_epoch != latest and batch.leader_epoch >= 0:
                latest = batch.leader_epoch
                self.assign_epoch(latest, batch.base_offset)
        return info

    def _follower_batches(self, view: memoryview, leader_epoch: int) -> list[BatchHeader]:
        batches: list[BatchHeader] = []
        last_offset = -1
        for batch in scan_batches(view):
            if batch.leader_epoch > leader_epoch:
                break
            if batch.magic >= 2:
                start = batch.position
                if crc32c(view[start + _CRC_START : start + batch.size]) != batch.crc:
                    raise CorruptMessage(
                        f"Record is corrupt (stored crc = {batch.crc}) in topic partition "
                        f"{self.topic_partition}."
                    )
            if batch.base_offset <= last_offset or batch.last_offset < batch.base_offset:
                raise CorruptMessage(
                    f"Out of order offsets found in append to {self.topic_partition}: "
                    f"{batch.base_offset} after {last_offset}"
                )
            last_offset = batch.last_offset
            batches.append(batch)
        return batches

    def _append(
        self,
        buffers: Sequence[Buffer],
        batches: Sequence[BatchHeader | BatchSummary],
        info: AppendInfo,
        producer_appends: ProducerAppends | None,
        now_ms: int,
    ) -> None:
        """Write, then take note: end offset first, so that no offset is ever given twice."""
        config = self.config
        if info.size_bytes > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {info.size_bytes} bytes in append to partition "
                f"{self.topic_partition}, which exceeds the maximum configured segment size of "
                f"{config.segment_bytes}.",
            )
        active = self.segments.active
        try:
            if not self._active_is_prepared:
                active.become_active()
                self._active_is_prepared = True
            if active.should_roll(
                size=info.size_bytes,
                max_timestamp=info.max_timestamp,
                last_offset=info.last_offset,
                now_ms=now_ms,
                config=config,
            ):
                active = self.roll(now_ms, base_offset=info.first_offset)
            active.append(buffers, info.size_bytes, batches)
        except OSError as error:
            if active.is_torn:
                self.failure = error
            raise self._storage_error("appending records to", error) from error
        self.log_end_offset = info.last_offset + 1
        self.size_bytes += info.size_bytes
        if producer_appends is not None:
            self._apply(producer_appends, active)
        self.producer_state.end_offset = self.log_end_offset

    def _apply(self, producer_appends: ProducerAppends, segment: Segment) -> None:
        state = self.producer_state
        state.apply(producer_appends.appends.values())
        for completed in producer_appends.completed:
            if completed.is_aborted:
                self._index_abort(segment, completed)
            state.complete(completed)
        for producer_id, append in producer_appends.appends.items():
            if append.is_transactional:
                state.end_verification(
                    producer_id,
                    producer_epoch=append.updated.producer_epoch,
                    is_control=append.has_marker,
                )
        self._first_unstable_offset = state.first_unstable_offset

    def _index_abort(self, segment: Segment, completed: CompletedTransaction) -> None:
        """Write the abort down; failing that, keep the transaction open until the next start.

        The records are in the log and their offsets taken, so that the log goes on in memory, but
        readers must not see what they could not filter (KAFKA-7866).
        """
        entry = AbortedTransaction(
            completed.producer_id,
            completed.first_offset,
            completed.last_offset,
            self.producer_state.last_stable_offset(completed),
        )
        self._names_version += 1
        try:
            segment.transaction_index.append(entry)
        except OSError as error:
            self.failure = error
            self.producer_state.end_offset = self.log_end_offset
            self._first_unstable_offset = self.producer_state.first_unstable_offset
            raise self._storage_error("indexing an abort of", error) from error

    def start_verification(
        self,
        producer_id: int,
        sequence: int,
        producer_epoch: int,
        *,
        now_ms: int,
        supports_epoch_bump: bool,
    ) -> Verification | None:
        """Begin to verify a transaction (KIP-890); append with what this returns."""
        return self.producer_state.start_verification(
            producer_id,
            sequence,
            producer_epoch,
            now_ms=now_ms,
            supports_epoch_bump=supports_epoch_bump,
        )

    # Reads

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: FetchIsolation = FetchIsolation.LOG_END,
        min_one_message: bool = True,
    ) -> FetchData:
        """Return batches from the one that holds offset on, as a slice of the file.

        OFFSET_OUT_OF_RANGE below the start or above the end; nothing at or behind the limit that
        the isolation sets. With min_one_message the first batch comes whole, however large;
        without it there is nothing if the first batch does not fit. Later ones may be cut.
        """
        if isolation is FetchIsolation.LOG_END:
            limit = self.log_end_offset
        elif isolation is FetchIsolation.HIGH_WATERMARK:
            limit = self.high_watermark
        else:
            limit = self.last_stable_offset
        if offset > self.log_end_offset or offset < self.log_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.topic_partition}, but "
                f"we only have log segments from offset {self.log_start_offset} to "
                f"{self.log_end_offset}.",
            )
        is_filtered = isolation is FetchIsolation.TXN_COMMITTED
        if offset >= limit:
            return FetchData(NO_DATA, offset, [] if is_filtered else None)
        number = self.segments.number_for(offset)
        while number < len(self.segments):
            found = self._read_segment(
                number, offset, limit, max_bytes, min_one_message=min_one_message
            )
            if found is not None:
                if not is_filtered:
                    return FetchData(found, offset)
                return FetchData(found, offset, self._aborted(number, offset, limit))
            number += 1
        return FetchData(NO_DATA, offset, [] if is_filtered else None)

    def _aborted(self, number: int, offset: int, limit: int) -> list[AbortedTransaction]:
        try:
            return aborted_transactions(self, number, offset, limit)
        except OSError as error:
            raise self._storage_error("reading the aborts of", error) from error

    def _read_segment(
        self, number: int, offset: int, limit: int, max_bytes: int, *, min_one_message: bool
    ) -> FileSlice | bytes | None:
        segment = self.segments[number]
        try:
            place = segment.place_of(offset)
            if place is None:
                return None
            start, first_bytes = place
            end = segment.size
            if limit < self.segments.end_of(number, self.log_end_offset):
                limit_position = segment.position_of(limit)
                end = segment.size if limit_position is None else limit_position
            if end - start > max_bytes:
                if not min_one_message and first_bytes > max_bytes:
                    return NO_DATA  # clients take a part of a batch for a record too large
                end = start + max(max_bytes, first_bytes)
        except OSError as error:
            raise self._storage_error("reading", error) from error
        if end <= start:
            return NO_DATA
        return FileSlice(segment.file, start, end - start)


def _slice(buffers: Sequence[Buffer], position: int, size: int) -> Buffer:
    """Cut a batch out of buffers that lie end to end; it never spans two."""
    for buffer in buffers:
        if position < len(buffer):
            return memoryview(buffer)[position : position + size]
        position -= len(buffer)
    raise AssertionError("a batch lies outside its buffers")


def parse_partition_name(name: str) -> TopicPartition:
    """Return what a directory name says: `topic-0`; ValueError when it says nothing."""
    topic, _, partition = name.rpartition("-")
    if not topic or not partition.isdigit():
        raise ValueError(f"{name!r} does not name a partition")
    return TopicPartition(topic, int(partition))


__all__ = ["UNDEFINED_EPOCH", "PartitionLog", "parse_partition_name"]
