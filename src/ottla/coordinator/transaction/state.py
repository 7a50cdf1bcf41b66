"""The state of one transactional id, as its record in `__transaction_state` has it.

Kafka: org.apache.kafka.coordinator.transaction.{TransactionMetadata, TransactionState}.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_PRODUCER_EPOCH: Final = 0x7FFF
TWO_PHASE_TIMEOUT_MS: Final = 0x7FFF_FFFF
"""The stored timeout of a two-phase transaction, which never times out (KIP-939)."""
EPOCH_BUMP_VERSION: Final = 2
"""The first transaction version that gives each transaction an epoch of its own (KIP-890)."""


class TransactionState(IntEnum):
    """The states, with the numbers of their records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name that tools show: "PrepareCommit"."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, and its markers are still to be written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """Whether a transaction has ended and no other has begun."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


STATES_BY_TEXT: Final = {state.text: state for state in TransactionState}


class Transaction(NamedTuple):
    """A transactional id; times in milliseconds, -1 where there is none.

    The next producer id alone replaces one whose epochs are used up, once the transaction ends. Id
    and epoch together are those of a producer that has taken over a prepared transaction (KIP-939).
    `last_epoch` is the epoch that the producer had before the last bump. It is no part of the
    record: a retried InitProducerId is recognised only by the coordinator that bumped the epoch.
    `record_offset` is the offset of its record in the coordinator's log. It names a decision: two
    transactions of an id may have the same producer, epoch and outcome.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    update_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0
    last_epoch: int = NO_PRODUCER_EPOCH
    record_offset: int = -1

    @property
    def owner(self) -> tuple[int, int]:
        """Id and epoch of the producer that may end the transaction; its records may have others.

        They differ after a producer has taken over a prepared transaction.
        """
        if self.is_taken_over:
            return self.next_producer_id, self.next_producer_epoch
        return self.producer_id, self.producer_epoch

    @property
    def is_taken_over(self) -> bool:
        """Whether another producer than the one that wrote the transaction will end it."""
        return self.next_producer_epoch != NO_PRODUCER_EPOCH

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next producer needs another producer id."""
        return self.producer_epoch >= MAX_PRODUCER_EPOCH - 1

    @property
    def bumps_epoch(self) -> bool:
        """Whether the producer's transactions have epochs of their own."""
        return self.client_version >= EPOCH_BUMP_VERSION

    @property
    def is_two_phase(self) -> bool:
        """Whether an external coordinator decides, in its own time."""
        return self.timeout_ms == TWO_PHASE_TIMEOUT_MS

    def has_timed_out(self, now_ms: int) -> bool:
        """Whether it is open for longer than its timeout."""
        return (
            self.state is TransactionState.ONGOING
            and not self.is_two_phase
            and self.start_ms + self.timeout_ms < now_ms
        )

    def has_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the id was unused for so long that it is forgotten."""
        is_idle = self.state is TransactionState.EMPTY or self.state.is_complete
        return is_idle and self.update_ms <= now_ms - expiration_ms
