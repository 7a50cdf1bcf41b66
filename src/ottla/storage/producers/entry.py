"""State of one producer in a log: epoch, last batches, open transaction.

Kafka: org.apache.kafka.storage.internals.log.{ProducerStateEntry, BatchMetadata, TxnMetadata}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.records.batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from ottla.records.validator import ValidatedBatch
    from ottla.storage.batches import BatchHeader

BATCHES_KEPT = 5
"""Kafka's clients have at most five requests in flight."""
NO_EPOCH = -1
NO_OFFSET = -1


class BatchMetadata(NamedTuple):
    """One of the last batches, to answer its duplicate with the old offsets."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        """Sequence of the first record, which may lie before the wrap at 2^31."""
        return (self.last_sequence - self.offset_delta) & 0x7FFF_FFFF


class EntryOwner:
    """Who may change an entry in place: one producer state between two of its snapshots.

    Compared by identity: no two states, and no two snapshots of one, ever have the same. A number
    would have to be unique among all states that may get each other's entries.
    """

    __slots__ = ()


class ProducerEntry:
    """State of one producer id; `transaction_first_offset` is -1 outside a transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_timestamp",
        "owner",
        "producer_epoch",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(
        self,
        producer_id: int,
        *,
        producer_epoch: int = NO_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        transaction_first_offset: int = NO_OFFSET,
        batches: tuple[BatchMetadata, ...] = (),
        owner: EntryOwner | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.transaction_first_offset = transaction_first_offset
        self.batches = batches
        self.owner = owner
        """Who may change it; None for an entry that was read from a snapshot: see `copied`."""

    def copied(self, owner: EntryOwner) -> ProducerEntry:
        """Return an equal entry that may be changed while a snapshot holds this one."""
        return ProducerEntry(
            self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            last_timestamp=self.last_timestamp,
            transaction_first_offset=self.transaction_first_offset,
            batches=self.batches,
            owner=owner,
        )

    def __repr__(self) -> str:
        return f"ProducerEntry{self.as_tuple()}"

    def as_tuple(self) -> tuple[int, int, int, int, int, tuple[BatchMetadata, ...]]:
        """Return everything, for comparison."""
        return (
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.transaction_first_offset,
            self.batches,
        )

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 when none is known."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_data_offset(self) -> int:
        """Offset of the last record, -1 when none is known."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.transaction_first_offset >= 0

    def duplicate_of(
        self, producer_epoch: int, base_sequence: int, last_sequence: int
    ) -> BatchMetadata | None:
        """Return the remembered batch with this epoch and these sequences."""
        if producer_epoch == self.producer_epoch:
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.base_sequence == base_sequence:
                    return batch
        return None

    def set_epoch(self, producer_epoch: int) -> None:
        """Forget the batches of another epoch."""
        if producer_epoch != self.producer_epoch:
            self.batches = ()
            self.producer_epoch = producer_epoch

    def add_batch(self, batch: BatchMetadata) -> None:
        """Remember one more batch, forgetting the oldest of five."""
        self.batches = (*self.batches[-(BATCHES_KEPT - 1) :], batch)

    def take_next(self, batch: ValidatedBatch | BatchHeader) -> None:
        """Add a batch of the known epoch outside of any transaction."""
        timestamp = self.last_timestamp = batch.max_timestamp
        last_offset = batch.last_offset
        self.add_batch(
            BatchMetadata(
                batch.last_sequence, last_offset, last_offset - batch.base_offset, timestamp
            )
        )
