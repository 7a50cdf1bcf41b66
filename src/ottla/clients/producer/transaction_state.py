"""The state of a producer's transactions: permitted calls, and the effects of errors.

Kafka: the states of org.apache.kafka.clients.producer.internals.TransactionManager.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from ottla.errors import (
    AbortableTransactionError,
    ErrorCode,
    FatalTransactionError,
    IllegalStateError,
    KafkaError,
)

if TYPE_CHECKING:
    from ottla.types import TopicPartition

_FATAL: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    }
)
"""After these codes the producer must be closed (KIP-1050: application-recoverable)."""


class ProducerIds(Protocol):
    """The producer id and epoch that batches are numbered with: the sender's."""

    producer_id: int
    producer_epoch: int

    def use_producer(self, producer_id: int, producer_epoch: int) -> None:
        """Take the id and epoch of the batches from now on."""


class State(Enum):
    """The states of a transactional producer; the value is Kafka's name."""

    UNINITIALIZED = "UNINITIALIZED"
    INITIALIZING = "INITIALIZING"
    READY = "READY"
    IN_TRANSACTION = "IN_TRANSACTION"
    PREPARED = "PREPARED_TRANSACTION"
    COMMITTING = "COMMITTING_TRANSACTION"
    ABORTING = "ABORTING_TRANSACTION"
    ABORTABLE_ERROR = "ABORTABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"


class PreparedTransaction(NamedTuple):
    """The name of a prepared transaction for an external coordinator: its producer id and epoch.

    As text "id:epoch", as Kafka's PreparedTxnState.
    """

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what `str` wrote; ValueError for other texts."""
        try:
            producer_id, producer_epoch = map(int, text.split(":"))
        except ValueError:
            raise ValueError(f"a prepared transaction is id:epoch, not {text!r}") from None
        return cls(producer_id, producer_epoch)


_NEXT_CALL: Final = {
    State.UNINITIALIZED: "call init_transactions() first",
    State.INITIALIZING: "its outcome is unknown: repeat init_transactions()",
    State.READY: "call begin_transaction() first",
    State.IN_TRANSACTION: "commit or abort the open transaction first",
    State.PREPARED: "call complete_transaction(), commit_transaction() or abort_transaction()",
    State.COMMITTING: "its outcome is unknown: repeat commit_transaction()",
    State.ABORTING: "it has not ended: repeat abort_transaction()",
}
"""What is possible in each state, for the texts of errors."""
_SENDING: Final = frozenset({State.IN_TRANSACTION, State.COMMITTING})
_BEGUN: Final = frozenset({State.IN_TRANSACTION, State.COMMITTING, State.ABORTABLE_ERROR})


class ProducerTransactionState:
    """The state of one transactional producer; its methods raise IllegalStateError out of turn."""

    def __init__(self) -> None:
        self.state = State.UNINITIALIZED
        self.error: KafkaError | None = None
        self.bumps_epoch = False
        """Whether each transaction has an epoch of its own (`transaction.version` 2)."""
        self.partitions: set[TopicPartition] = set()
        """Those that the coordinator knows, or is informed of by their first batch."""
        self.has_offsets = False
        self.has_begun = False
        """Whether the coordinator has a transaction without partitions and offsets known here."""
        self.prepared: PreparedTransaction | None = None
        """The prepared transaction, of this producer or of its predecessor with the same id."""
        self.needs_bump = False
        """Whether the sequences of a partition cannot be continued in this epoch."""

    @property
    def is_sending(self) -> bool:
        """Whether batches may be sent."""
        return self.state in _SENDING

    @property
    def drops_unsent(self) -> bool:
        """Whether batches that are not in flight fail: those of a failed or aborted transaction."""
        return self.state is State.ABORTING or self.error is not None

    @property
    def is_empty(self) -> bool:
        """Whether the coordinator has nothing to end."""
        return not (self.partitions or self.has_offsets or self.has_begun or self.prepared)

    def check(self) -> None:
        """Raise the error that the transaction or the producer ended with."""
        if self.error is None:
            return
        kind = FatalTransactionError if self.state is State.FATAL_ERROR else None
        raise (kind or AbortableTransactionError)(self.error)

    def check_send(self) -> None:
        """Refuse records outside of a transaction."""
        if self.state is State.IN_TRANSACTION:
            return
        self.check()
        raise IllegalStateError(
            f"Cannot send records in state {self.state.value}: {_NEXT_CALL[self.state]}"
        )

    def enter(self, target: State, *allowed: State) -> None:
        """Change the state, from one of those allowed."""
        if self.state is State.FATAL_ERROR or (
            self.state is State.ABORTABLE_ERROR and State.ABORTABLE_ERROR not in allowed
        ):
            self.check()
        if self.state not in allowed:
            raise IllegalStateError(
                f"Invalid transition attempted from state {self.state.value} to state "
                f"{target.value}: {_NEXT_CALL[self.state]}"
            )
        self.state = target
        if target in (State.IN_TRANSACTION, State.ABORTING, State.READY):
            self.error = None

    def begin(self) -> None:
        """Start a transaction; its first batch informs the coordinator."""
        self.enter(State.IN_TRANSACTION, State.READY)
        self.partitions.clear()
        self.has_offsets = self.has_begun = False
        self.prepared = None

    def fail(self, error: KafkaError) -> None:
        """Take an error: the transaction must be aborted, or the producer closed."""
        if self.state is State.FATAL_ERROR:
            return
        if error.code in _FATAL:
            self.state, self.error = State.FATAL_ERROR, error
        elif self.state in _BEGUN:
            self.error = self.error or error
            self.state = State.ABORTABLE_ERROR
