"""Appends to a log: one batch as the leader, or batches as a follower gets them from the leader.

Hot path: `LogWrites.append_as_leader` and `append_as_follower` (benchmarks/log.py).
Kafka: UnifiedLog.{appendAsLeader, appendAsFollower, append}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.crc32c import crc32c
from ottla.records.validator import AppendOrigin, place_checked, validate
from ottla.storage.batches import whole_batches
from ottla.storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from ottla.storage.indexes.transaction_index import AbortedTransaction
from ottla.storage.log.append_info import AppendInfo, UnexpectedAppendOffset
from ottla.storage.producers.append import TRANSACTION_VERSION_UNKNOWN, follows
from ottla.storage.producers.update import SPECIAL_FLAGS, validate_producers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.records.validation_rules import CheckedBatch
    from ottla.records.validator import ValidatedBatch
    from ottla.storage.batches import BatchHeader
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.producers.append import (
        CompletedTransaction,
        EndTransactionMarker,
        Verification,
    )
    from ottla.storage.producers.entry import BatchMetadata, ProducerEntry
    from ottla.storage.producers.update import ProducerAppends
    from ottla.storage.segments.segment import Segment
    from ottla.types import Buffer

_CRC_START: Final = 21
_MAGIC: Final = 2
_CLIENT: Final = AppendOrigin.CLIENT
_new_tuple: Final = tuple.__new__


class LogWrites:
    """Appends to one log."""

    __slots__ = ("_log",)

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def append_as_leader(
        self,
        records: memoryview | CheckedBatch,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = _CLIENT,
        *,
        verification: Verification | None = None,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
        marker: EndTransactionMarker | None = None,
    ) -> AppendInfo:
        """Validate one batch, give it offsets and write it; `records` is patched in place.

        The other arguments are those of `TransactionAppend`.

        RecordValidationError or KafkaError with the producer's code when it is refused,
        KAFKA_STORAGE_ERROR (caused by an OSError) when the disk fails; OffloadRequired for a
        client's batch that must be checked in a worker and passed again as a CheckedBatch. A
        duplicate of one of the producer's last five batches is not written and answered with the
        old offsets.
        """
        log = self._log
        if not log.is_ready:
            log.make_ready()
        first = log.log_end_offset
        if type(records) is memoryview:
            batch = validate(records, first, leader_epoch, now_ms, log.rules, origin)
        else:
            batch = place_checked(records, first, leader_epoch, now_ms)
        producer, appends = None, None
        if batch.producer_id >= 0:
            producer = _next_of(log, batch, origin)
            if producer is None:
                appends = validate_producers(
                    log.producer_state,
                    (batch,),
                    lambda _batch: batch.buffer,
                    origin=origin,
                    verification=verification,
                    verification_required=log.config.transaction_partition_verification_enable,
                    transaction_version=transaction_version,
                    marker=marker,
                )
                if appends.duplicate is not None:
                    return self._duplicate(appends.duplicate)
        size, last, largest = batch.size, batch.last_offset, batch.max_timestamp
        _check_fits_a_segment(log, size)
        self._write((batch.buffer,), size, ((last, largest, size),), first, now_ms)
        if producer is not None:
            log.producer_state.writable(producer).take_next(batch)
        elif appends is not None:
            self._apply(appends)
        if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            log.on_flush_overdue(log)
        epochs = log.leader_epochs.entries
        if leader_epoch >= 0 and (not epochs or epochs[-1].epoch != leader_epoch):
            log.assign_epoch(leader_epoch, first)
        info: AppendInfo = _new_tuple(
            AppendInfo,
            (
                first,
                last,
                largest,
                batch.log_append_time_ms,
                log.log_start_offset,
                batch.record_count,
                size,
                False,
            ),
        )
        return info

    def _duplicate(self, old: BatchMetadata) -> AppendInfo:
        log = self._log
        if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            log.on_flush_overdue(log)  # the first answer may not have left either
        return AppendInfo(
            old.base_offset,
            old.last_offset,
            old.timestamp,
            old.timestamp,
            log.log_start_offset,
            is_duplicate=True,
        )

    def _write(
        self,
        buffers: Sequence[Buffer],
        size: int,
        batches: Sequence[tuple[int, int, int]],
        first_offset: int,
        now_ms: int,
    ) -> None:
        """Write batches to one segment, each by its last offset, largest timestamp and size.

        The end offset moves afterwards, so that no offset is ever given twice.
        """
        log = self._log
        config, active = log.config, log.segments.active
        last_offset, largest, _ = batches[-1]
        if len(batches) > 1:
            largest = max(timestamp for _, timestamp, _ in batches)
        try:
            if not log.active_is_prepared:
                log.prepare_active()
            if active.should_roll(size, largest, last_offset, now_ms, config):
                active = log.roll(now_ms, base_offset=_new_base(log, first_offset, last_offset))
            active.append(buffers, size, batches)
        except OSError as error:
            if active.is_torn:
                log.fail(error)
            raise log.storage_error("appending records to", error) from error
        log.appended(last_offset + 1, size)

    def _apply(self, appends: ProducerAppends) -> None:
        """Apply the append's effects on producers and transactions."""
        log = self._log
        state = log.producer_state
        state.apply(appends.appends.values())
        for completed in appends.completed:
            if completed.is_aborted:
                self._index_abort(log.segments.active, completed)
            state.complete(completed)
        for producer_id, append in appends.appends.items():
            if append.is_transactional:
                state.end_verification(
                    producer_id,
                    producer_epoch=append.updated.producer_epoch,
                    is_control=append.has_marker,
                )
        log.transactions_changed()

    def _index_abort(self, segment: Segment, completed: CompletedTransaction) -> None:
        """Write the abort; failing that, keep the transaction open until the next start.

        The records are in the log and their offsets taken: the log continues in memory, but
        readers must not get records that they cannot filter (KAFKA-7866).
        """
        log = self._log
        entry = AbortedTransaction(
            completed.producer_id,
            completed.first_offset,
            completed.last_offset,
            log.producer_state.last_stable_offset(completed),
        )
        log.names_changed()
        try:
            segment.transaction_index.append(entry)
        except OSError as error:
            log.fail(error)
            log.transactions_changed()
            raise log.storage_error("indexing an abort of", error) from error

    def append_as_follower(
        self, records: Buffer, *, leader_epoch: int, now_ms: int
    ) -> AppendInfo | None:
        """Write whole batches as the leader wrote them; None when there is nothing to write.

        An incomplete batch at the end, batches of an epoch above `leader_epoch` and what
        follows them are left out. CorruptMessage for wrong checksums or offsets and for an older
        epoch than the one before, UnexpectedAppendOffset for batches below the end.
        """
        log = self._log
        if not log.is_ready:
            log.make_ready()
        view = memoryview(records)
        batches = self._follower_batches(view, leader_epoch)
        if not batches:
            return None
        first, last = batches[0], batches[-1]
        if first.base_offset < log.log_end_offset:
            raise UnexpectedAppendOffset(
                f"Unexpected offset in append to {log.topic_partition}. First offset "
                f"{first.base_offset} is less than the next offset {log.log_end_offset}. "
                f"Log start offset = {log.log_start_offset}",
                first_offset=first.base_offset,
                last_offset=last.last_offset,
            )
        size = last.position + last.size
        span = last.last_offset - first.base_offset
        if size <= log.config.segment_bytes and span <= MAX_RELATIVE_OFFSET:
            self._append_copied(view, batches, now_ms)
        else:
            for some in _by_segment(batches, log.config.segment_bytes):
                self._append_copied(view, some, now_ms)
        if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            log.on_flush_requested(log)
        if last.leader_epoch != log.latest_epoch:
            self._assign_epochs(batches)
        return AppendInfo(
            first.base_offset,
            last.last_offset,
            max([batch.max_timestamp for batch in batches]),
            -1,
            log.log_start_offset,
            sum([max(batch.record_count, 1) for batch in batches]),
            size,
        )

    def _append_copied(self, view: memoryview, batches: list[BatchHeader], now_ms: int) -> None:
        """Write checked batches that fit into one segment."""
        log, first, last = self._log, batches[0], batches[-1]
        producers, appends = _known_producers(log, batches), None
        if producers is None:
            appends = validate_producers(
                log.producer_state,
                batches,
                lambda batch: view[batch.position : batch.position + batch.size],
                origin=AppendOrigin.REPLICATION,
            )
        end = last.position + last.size
        places = [(batch.last_offset, batch.max_timestamp, batch.size) for batch in batches]
        buffers, size = (view[first.position : end],), end - first.position
        self._write(buffers, size, places, first.base_offset, now_ms)
        if producers is not None:
            writable = log.producer_state.writable
            for entry, batch in producers:
                writable(entry).take_next(batch)
        elif appends is not None:
            self._apply(appends)

    def _assign_epochs(self, batches: list[BatchHeader]) -> None:
        latest = self._log.latest_epoch
        for batch in batches:
            if batch.leader_epoch != latest and batch.leader_epoch >= 0:
                latest = batch.leader_epoch
                self._log.assign_epoch(latest, batch.base_offset)

    def _follower_batches(self, view: memoryview, leader_epoch: int) -> list[BatchHeader]:
        log = self._log
        last_offset, epoch, end_offset = -1, log.latest_epoch, log.log_end_offset
        batches = whole_batches(view)
        for number, batch in enumerate(batches):
            start, size, base_offset, last, batch_epoch, magic, crc, *_ = batch
            if batch_epoch > leader_epoch:
                return batches[:number]
            if magic >= _MAGIC and crc32c(view[start + _CRC_START : start + size]) != crc:
                raise CorruptMessage(
                    f"Record is corrupt (stored crc = {crc}) in topic partition "
                    f"{log.topic_partition}."
                )
            if base_offset <= last_offset or last < base_offset:
                raise CorruptMessage(
                    f"Out of order offsets found in append to {log.topic_partition}: "
                    f"{base_offset} after {last_offset}"
                )
            if 0 <= batch_epoch < epoch and base_offset >= end_offset:
                raise CorruptMessage(
                    f"Records of leader epoch {batch_epoch} found after epoch {epoch} in "
                    f"append to {log.topic_partition}"
                )
            last_offset = last
            if batch_epoch > epoch:  # noqa: PLR1730 - half the cost of max()
                epoch = batch_epoch
        return batches


def _check_fits_a_segment(log: PartitionLog, size: int) -> None:
    if size > log.config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {size} bytes in append to partition {log.topic_partition}, "
            f"which exceeds the maximum configured segment size of {log.config.segment_bytes}.",
        )


def _by_segment(batches: list[BatchHeader], segment_bytes: int) -> Iterator[list[BatchHeader]]:
    """Yield batches in parts that fit into a segment, or a batch alone that does not.

    The leader took it when segment.bytes was larger; Kafka's followers stop there for good.
    """
    some: list[BatchHeader] = []
    for batch in batches:
        if some and (
            batch.position + batch.size - some[0].position > segment_bytes
            or batch.last_offset - some[0].base_offset > MAX_RELATIVE_OFFSET
        ):
            yield some
            some = []
        some.append(batch)
    yield some


def _new_base(log: PartitionLog, first_offset: int, last_offset: int) -> int:
    """Return where a segment begins: after the one before it, also where a copy has a gap.

    Kafka's begins at its first batch. Here a gap between two segments is one of lost records.
    """
    end_offset = log.log_end_offset
    return end_offset if last_offset - end_offset <= MAX_RELATIVE_OFFSET else first_offset


def _known_producers(
    log: PartitionLog, batches: list[BatchHeader]
) -> list[tuple[ProducerEntry, BatchHeader]] | None:
    """Return the producers of batches outside of transactions, each known in the batch's epoch.

    They need no checks; None when `validate_producers` must check the batches.
    """
    producers = log.producer_state.producers
    found = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        entry = producers.get(batch.producer_id)
        if (
            entry is None
            or entry.producer_epoch != batch.producer_epoch
            or entry.transaction_first_offset >= 0
            or batch.attributes & SPECIAL_FLAGS
        ):
            return None
        found.append((entry, batch))
    return found


def _next_of(
    log: PartitionLog, batch: ValidatedBatch, origin: AppendOrigin
) -> ProducerEntry | None:
    """Return the producer when this is its next batch, outside of transactions, in a known epoch.

    No other check applies then; `validate_producers` handles all other cases.
    """
    state = log.producer_state
    entry = state.producers.get(batch.producer_id)
    if (
        entry is None
        or batch.producer_id in state.verifications
        or not entry.batches
        or entry.producer_epoch != batch.producer_epoch
        or entry.transaction_first_offset >= 0
        or batch.is_transactional
        or batch.is_control
        or origin is not _CLIENT
        or not follows(entry.batches[-1].last_sequence, batch.base_sequence)
    ):
        return None
    return entry
