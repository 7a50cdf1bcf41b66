"""Appends to a log: one batch as the leader, or batches as a follower gets them from the leader.

Hot path: `LogWrites.append_as_leader` and `append_as_follower` (benchmarks/log.py).
Kafka: UnifiedLog.{appendAsLeader, appendAsFollower, append}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.batch import TRANSACTIONAL_FLAG
from ottla.records.crc32c import crc32c
from ottla.records.validator import AppendOrigin, place_checked, validate
from ottla.storage.batches import whole_batches
from ottla.storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from ottla.storage.indexes.transaction_index import AbortedTransaction
from ottla.storage.log.append_info import AppendInfo, UnexpectedAppendOffset
from ottla.storage.producers.append import (
    EPOCH_BUMP_VERSION,
    TRANSACTION_VERSION_UNKNOWN,
    follows,
)
from ottla.storage.producers.update import SPECIAL_FLAGS, read_marker, validate_producers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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

    _UsualBatch = tuple[ProducerEntry, BatchHeader | ValidatedBatch, EndTransactionMarker | None]

_CRC_START: Final = 21
_MAGIC: Final = 2
_CLIENT: Final = AppendOrigin.CLIENT  # an enum's members are found slowly
_COORDINATOR: Final = AppendOrigin.COORDINATOR
_new_tuple: Final = tuple.__new__


class LogWrites:
    """Appends to one log."""

    __slots__ = ("_log",)

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def append_as_leader(  # noqa: C901 - the steps of the hot path
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
            if batch.is_control and marker is None:
                marker = read_marker(batch.buffer)
            producer = _usual_producer(
                log, batch, origin, verification, transaction_version, marker
            )
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
            self._apply_usual(((producer, batch, marker),))
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

    def _apply_usual(self, batches: Iterable[_UsualBatch]) -> None:
        """Apply usual batches to their entries, in place; as in `_apply`, transactions end last."""
        state = self._log.producer_state
        completed: list[CompletedTransaction] = []
        is_changed = False
        for producer, batch, marker in batches:
            if not batch.is_transactional:
                state.writable(producer).take_next(batch)
            elif marker is None:
                is_changed |= state.take_transactional(producer, batch)
            else:
                completed.append(state.take_marker(producer, batch, marker))
        if completed or is_changed:
            self._complete(completed)
            self._log.transactions_changed()

    def _complete(self, transactions: Iterable[CompletedTransaction]) -> None:
        """Close transactions; aborts are indexed first, so that no reader misses them."""
        log = self._log
        for completed in transactions:
            if completed.is_aborted:
                self._index_abort(log.segments.active, completed)
            log.producer_state.complete(completed)

    def _apply(self, appends: ProducerAppends) -> None:
        """Apply the append's effects on producers and transactions."""
        log = self._log
        state = log.producer_state
        state.apply(appends.appends.values())
        self._complete(appends.completed)
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
        usual, appends = _usual_batches(log, batches, view), None
        if usual is None:
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
        if usual is not None:
            self._apply_usual(usual)
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


def _usual_batches(
    log: PartitionLog, batches: list[BatchHeader], view: memoryview
) -> list[_UsualBatch] | None:
    """Return the batches of producers, where none can be refused and each changes a known entry.

    None when `validate_producers` must check them: a new producer, a batch outside of a transaction
    in a new epoch or next to one, a marker without a transaction. A follower copies whatever
    sequence the leader took.
    """
    state = log.producer_state
    usual: list[_UsualBatch] = []
    is_open: dict[int, bool] = {}
    """Whether a producer's transaction is open after the batches so far; missing as in the log."""
    for batch in batches:
        producer_id = batch.producer_id
        if producer_id < 0:
            continue
        entry = state.producers.get(producer_id)
        if entry is None:
            return None
        flags, marker = batch.attributes & SPECIAL_FLAGS, None
        if not flags:
            if (
                batch.producer_epoch != entry.producer_epoch
                or entry.transaction_first_offset >= 0
                or producer_id in is_open
            ):
                return None
        elif producer_id in state.verifications or batch.producer_epoch < entry.producer_epoch:
            return None
        elif flags == TRANSACTIONAL_FLAG:
            is_open[producer_id] = True
        else:
            if flags == SPECIAL_FLAGS and is_open.get(producer_id, entry.in_transaction):
                marker = read_marker(view[batch.position : batch.position + batch.size])
            if marker is None:
                return None
            is_open[producer_id] = False
        usual.append((entry, batch, marker))
    return usual


def _usual_producer(
    log: PartitionLog,
    batch: ValidatedBatch,
    origin: AppendOrigin,
    verification: Verification | None,
    transaction_version: int,
    marker: EndTransactionMarker | None,
) -> ProducerEntry | None:
    """Return the producer of a batch or marker that no check refuses and that changes its entry.

    These are its next batch, in a transaction or outside, in a known epoch; the first batch of a
    verified transaction; and the marker that ends one. `validate_producers` handles all other
    cases.
    """
    _, _, producer_id, epoch, sequence, _, _, is_transactional, is_control, _, _, _, _, _ = batch
    state = log.producer_state
    entry = state.producers.get(producer_id)
    if entry is None:
        return None
    is_same_epoch, is_open = epoch == entry.producer_epoch, entry.transaction_first_offset >= 0
    guard = state.verifications.get(producer_id) if state.verifications else None
    if is_control:
        is_usual = (
            marker is not None
            and is_transactional
            and is_open
            and marker.coordinator_epoch >= entry.coordinator_epoch
            and epoch >= entry.producer_epoch
            and not (is_same_epoch and transaction_version >= EPOCH_BUMP_VERSION)
        )
    elif is_open or not is_transactional:
        is_usual = is_same_epoch and guard is None and is_open == is_transactional
    else:
        is_verified = guard is not None or not log.config.transaction_partition_verification_enable
        is_usual = epoch >= entry.producer_epoch and guard is verification and is_verified
    if not is_usual:
        return None
    if origin is not _CLIENT:  # a coordinator's batches have no sequences
        return entry if origin is _COORDINATOR and is_transactional else None
    if not is_same_epoch:
        is_next = sequence == 0
    elif entry.batches:
        is_next = follows(entry.batches[-1][0], sequence)
    else:
        is_next = sequence == 0 and is_transactional
    is_in_order = is_next and (guard is None or sequence <= guard.lowest_sequence)
    return entry if is_in_order else None
