"""Producer state from batches: the validation of an append, and the replay of existing batches.

Hot path: `validate_producers` runs once an append (benchmarks/log.py).
Kafka: UnifiedLog.analyzeAndValidateProducerState, UnifiedLog.updateProducers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, RecordBatch
from ottla.records.control import ControlRecordType, decode_control_type, decode_end_txn_marker
from ottla.records.validator import AppendOrigin
from ottla.storage.producers.append import (
    TRANSACTION_VERSION_UNKNOWN,
    CompletedTransaction,
    EndTransactionMarker,
    ProducerAppend,
    Verification,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.records.validator import ValidatedBatch
    from ottla.storage.batches import BatchHeader
    from ottla.storage.producers.entry import BatchMetadata
    from ottla.storage.producers.state import PartitionProducers
    from ottla.types import Buffer

_CONTROL_BATCH_LIMIT_BYTES = 1 << 20
_CLIENT = AppendOrigin.CLIENT
SPECIAL_FLAGS: Final = TRANSACTIONAL_FLAG | CONTROL_FLAG
"""Of batches that do more than add to a producer's sequence."""
_END_MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


class ProducerAppends(NamedTuple):
    """The effects of an append on the producers, or the old batch that it repeats."""

    appends: dict[int, ProducerAppend]
    completed: list[CompletedTransaction]
    duplicate: BatchMetadata | None = None


def validate_producers(
    state: PartitionProducers,
    batches: Sequence[BatchHeader | ValidatedBatch],
    batch_bytes: Callable[[BatchHeader | ValidatedBatch], Buffer],
    *,
    origin: AppendOrigin,
    verification: Verification | None = None,
    verification_required: bool = False,
    transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    marker: EndTransactionMarker | None = None,
) -> ProducerAppends:
    """Check all batches of an append; KafkaError with the producer's code refuses them all.

    The marker is what a control batch contains, where that is known.
    """
    appends: dict[int, ProducerAppend] = {}
    completed: list[CompletedTransaction] = []
    for batch in batches:
        producer_id = batch.producer_id
        if producer_id < 0:
            continue
        if origin is AppendOrigin.CLIENT:
            entry = state.producers.get(producer_id)
            duplicate = entry and entry.duplicate_of(
                batch.producer_epoch, batch.base_sequence, batch.last_sequence
            )
            if duplicate:
                return ProducerAppends({}, [], duplicate)
        if batch.is_transactional and origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
            _check_verified(state, batch, verification, required=verification_required)
        append = appends.get(producer_id)
        if append is None:
            append = appends[producer_id] = state.prepare(producer_id, origin)
        if batch.is_control:
            found = marker or read_marker(batch_bytes(batch))
            done = _validate_marker(append, batch, found, transaction_version)
            if done is not None:
                completed.append(done)
        else:
            append.append_data(batch)
    return ProducerAppends(appends, completed)


def _check_verified(
    state: PartitionProducers,
    batch: BatchHeader | ValidatedBatch,
    verification: Verification | None,
    *,
    required: bool,
) -> None:
    """Let a transaction begin here only when its coordinator knows of it (KAFKA-14884)."""
    if state.has_ongoing_transaction(batch.producer_id, batch.producer_epoch):
        return
    state.check_epoch(batch.producer_id, batch.producer_epoch)
    if not required or batch.is_control:
        return
    if verification is None or verification is not state.verification(batch.producer_id):
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction"
        )


def _validate_marker(
    append: ProducerAppend,
    batch: BatchHeader | ValidatedBatch,
    marker: EndTransactionMarker | None,
    transaction_version: int,
) -> CompletedTransaction | None:
    if marker is None:
        return None
    return append.append_marker(
        marker,
        producer_epoch=batch.producer_epoch,
        offset=batch.base_offset,
        timestamp=batch.max_timestamp,
        transaction_version=transaction_version,
    )


def read_marker(data: Buffer) -> EndTransactionMarker | None:
    """Return the marker in a control batch; None when it holds none or other control records."""
    records = RecordBatch(data).records(_CONTROL_BATCH_LIMIT_BYTES)
    if not records:
        return None  # compaction may empty a control batch
    if decode_control_type(records[0].key) not in _END_MARKERS:
        return None
    kind, coordinator_epoch = decode_end_txn_marker(records[0])
    return EndTransactionMarker(kind is ControlRecordType.ABORT, coordinator_epoch)


def replay_batch(
    state: PartitionProducers, batch: BatchHeader, batch_bytes: Callable[[BatchHeader], Buffer]
) -> list[CompletedTransaction]:
    """Apply a batch of the log to the state; return the transactions that it completed.

    The caller writes the transaction index and then calls `PartitionProducers.complete`.
    """
    if batch.producer_id < 0:
        return []
    entry = state.producers.get(batch.producer_id)
    if (
        entry is not None
        and entry.producer_epoch == batch.producer_epoch
        and entry.transaction_first_offset < 0
        and not batch.attributes & SPECIAL_FLAGS
    ):
        state.writable(entry).take_next(batch)  # the common case: no check applies
        return []
    append = state.prepare(batch.producer_id, AppendOrigin.REPLICATION)
    done: CompletedTransaction | None = None
    if batch.is_control:
        try:
            found = read_marker(batch_bytes(batch))
            done = _validate_marker(append, batch, found, TRANSACTION_VERSION_UNKNOWN)
        except KafkaError as error:
            raise CorruptMessage(str(error)) from error
    else:
        append.append_data(batch)
    state.apply([append])
    return [] if done is None else [done]
