"""The effect of one append on one producer: validated first, applied once the bytes are written.

Idempotence (KIP-98), unknown producers (KIP-360) and epoch bumps (KIP-890) are decided here.
Kafka: org.apache.kafka.storage.internals.log.{ProducerAppendInfo, VerificationStateEntry}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records.validator import AppendOrigin
from ottla.storage.producers.entry import NO_EPOCH, NO_OFFSET, BatchMetadata, ProducerEntry

if TYPE_CHECKING:
    from ottla.records.validator import ValidatedBatch
    from ottla.storage.batches import BatchHeader

TRANSACTION_VERSION_UNKNOWN = -1
EPOCH_BUMP_VERSION: Final = 2
"""The first transaction version whose markers carry a newer epoch than the records (KIP-890)."""
_MAX_EPOCH = 0x7FFF


class CompletedTransaction(NamedTuple):
    """A transaction whose marker is in this append; last_offset is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class EndTransactionMarker(NamedTuple):
    """Content of an end-transaction marker."""

    is_abort: bool
    coordinator_epoch: int


class Verification:
    """A transaction that is being verified with its coordinator; itself the guard (KIP-890)."""

    __slots__ = ("lowest_sequence", "producer_epoch", "supports_epoch_bump", "timestamp", "waiting")

    def __init__(
        self,
        timestamp: int,
        lowest_sequence: int,
        producer_epoch: int,
        *,
        supports_epoch_bump: bool,
    ) -> None:
        self.timestamp = timestamp
        self.lowest_sequence = lowest_sequence
        self.producer_epoch = producer_epoch
        self.supports_epoch_bump = supports_epoch_bump
        self.waiting = 0
        """The appends that wait for the coordinator's answer; it is kept for as long."""

    def lower_to(self, sequence: int, producer_epoch: int) -> None:
        """Record a batch that may precede the known one; a newer epoch replaces both."""
        if producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = sequence


class TransactionAppend(NamedTuple):
    """What an append of a transaction's batch or marker needs besides the batch.

    `verification` is the log's guard of a transaction that begins with this batch (KIP-890),
    `version` the transaction version of the producer of a marker (KIP-1228), `marker` what the
    batch contains, where the caller knows it.
    """

    verification: Verification | None = None
    version: int = TRANSACTION_VERSION_UNKNOWN
    marker: EndTransactionMarker | None = None


def follows(last_sequence: int, next_sequence: int) -> bool:
    """Whether next comes directly after last, 2^31-1 being followed by 0."""
    return next_sequence == (last_sequence + 1 if last_sequence != 0x7FFF_FFFF else 0)


class ProducerAppend:
    """The producer's state as it will be after the append."""

    __slots__ = (
        "_current",
        "_origin",
        "_partition",
        "_verification",
        "has_marker",
        "is_transactional",
        "started",
        "updated",
    )

    def __init__(
        self,
        partition: str,
        current: ProducerEntry,
        *,
        origin: AppendOrigin,
        verification: Verification | None,
    ) -> None:
        self._partition = partition
        self._current = current
        self._origin = origin
        self._verification = verification
        self.has_marker = False
        self.is_transactional = False
        self.started: list[int] = []  # first offsets of transactions begun here
        self.updated = ProducerEntry(
            current.producer_id,
            producer_epoch=current.producer_epoch,
            coordinator_epoch=current.coordinator_epoch,
            last_timestamp=current.last_timestamp,
            transaction_first_offset=current.transaction_first_offset,
        )

    def append_data(self, batch: BatchHeader | ValidatedBatch) -> None:
        """Validate a data batch; KafkaError with the code for the producer."""
        updated = self.updated
        self.is_transactional |= batch.is_transactional
        epoch, offset = batch.producer_epoch, batch.base_offset
        if epoch < updated.producer_epoch:
            self._check_epoch(epoch, offset, TRANSACTION_VERSION_UNKNOWN)
        if self._origin is AppendOrigin.CLIENT:
            self._check_sequence(epoch, batch.base_sequence, offset)
        if updated.in_transaction and not batch.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {updated.producer_id} at offset "
                f"{offset} in partition {self._partition}",
            )
        updated.set_epoch(epoch)
        updated.add_batch(
            BatchMetadata(
                batch.last_sequence,
                batch.last_offset,
                batch.last_offset - offset,
                batch.max_timestamp,
            )
        )
        updated.last_timestamp = batch.max_timestamp
        if batch.is_transactional and not updated.in_transaction:
            updated.transaction_first_offset = offset
            self.started.append(offset)

    def append_marker(
        self,
        marker: EndTransactionMarker,
        *,
        producer_epoch: int,
        offset: int,
        timestamp: int,
        transaction_version: int,
    ) -> CompletedTransaction | None:
        """Validate an end-transaction marker; None when no transaction was open."""
        updated = self.updated
        self.has_marker = self.is_transactional = True
        self._check_epoch(producer_epoch, offset, transaction_version)
        self._check_coordinator_epoch(marker.coordinator_epoch, offset)
        completed = None
        if updated.in_transaction:
            completed = CompletedTransaction(
                updated.producer_id, updated.transaction_first_offset, offset, marker.is_abort
            )
        updated.set_epoch(producer_epoch)
        updated.coordinator_epoch = marker.coordinator_epoch
        updated.last_timestamp = timestamp
        updated.transaction_first_offset = NO_OFFSET
        return completed

    def _check_epoch(self, epoch: int, offset: int, transaction_version: int) -> None:
        """Refuse an old epoch; under TV2 a marker must carry a newer one (KIP-890)."""
        current = self.updated.producer_epoch
        bumped = transaction_version >= EPOCH_BUMP_VERSION
        if epoch > current or (epoch == current and not bumped):
            return
        if bumped and epoch == current:
            finished = not self.updated.in_transaction
            if finished or epoch == _MAX_EPOCH:
                return  # a retried marker whose transaction is complete: written again
        if self._origin is AppendOrigin.REPLICATION:
            return  # the leader decided; a follower only copies
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch of producer {self.updated.producer_id} at offset {offset} in "
            f"{self._partition} is {epoch}, which is {'<=' if bumped else '<'} the last seen "
            f"epoch {current} (TV{transaction_version})",
        )

    def _check_coordinator_epoch(self, epoch: int, offset: int) -> None:
        current = self.updated.coordinator_epoch
        if current > epoch and self._origin is not AppendOrigin.REPLICATION:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {self.updated.producer_id} at offset "
                f"{offset} in partition {self._partition}: {epoch} (zombie), {current} (current)",
            )

    def _check_sequence(self, epoch: int, sequence: int, offset: int) -> None:
        self._check_verified_sequence(sequence, offset)
        current, updated = self._current, self.updated
        if epoch != updated.producer_epoch:
            if sequence != 0 and updated.producer_epoch != NO_EPOCH:
                raise self._out_of_order(
                    f"Invalid sequence number for new epoch of producer {updated.producer_id}at "
                    f"offset {offset} in partition {self._partition}: {epoch} (request epoch), "
                    f"{sequence} (seq. number), {updated.producer_epoch} (current producer epoch)"
                )
            return
        if updated.batches:
            last = updated.last_sequence
        else:
            last = current.last_sequence if epoch == current.producer_epoch else -1
        if current.producer_epoch != NO_EPOCH and not follows(last, sequence):
            raise self._out_of_order(
                f"Out of order sequence number for producer {updated.producer_id} at offset "
                f"{offset} in partition {self._partition}: {sequence} (incoming seq. number), "
                f"{last} (current end sequence number)"
            )

    def _check_verified_sequence(self, sequence: int, offset: int) -> None:
        verification = self._verification
        if verification is None:
            return
        place = (
            f"producer {self.updated.producer_id} at offset {offset} in partition {self._partition}"
        )
        if verification.supports_epoch_bump and sequence != 0 and not self._current.batches:
            raise self._out_of_order(
                f"Invalid sequence number for {place}: {sequence} (incoming seq. number). Expected "
                "sequence 0 for transactions v2 idempotent producer with no existing state."
            )
        if sequence > verification.lowest_sequence:
            raise self._out_of_order(
                f"Out of order sequence number for {place}: {sequence} (incoming seq. number), "
                f"{verification.lowest_sequence} (earliest seen sequence)"
            )

    @staticmethod
    def _out_of_order(message: str) -> KafkaError:
        return KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
