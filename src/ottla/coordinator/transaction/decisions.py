"""Whether a request may change a transactional id, and to what.

Each function returns the next state or raises KafkaError; NONE in `Unchanged` answers a retry.

Kafka: TransactionCoordinator.{prepareInitProducerIdTransit, handleAddPartitionsToTransaction,
endTransaction, endTransactionWithTV1}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.transaction import transitions
from ottla.coordinator.transaction.state import (
    EPOCH_BUMP_VERSION,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
)
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.types import TopicPartition


class ProducerIdRequired(KafkaError):
    """The decision needs a new producer id: ask for one, then decide again."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class ProducerKey(NamedTuple):
    """A producer as its requests name it."""

    producer_id: int
    producer_epoch: int


class InitRequest(NamedTuple):
    """A request for a producer id; timeout_ms is the one that is stored."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerKey | None = None
    keeps_prepared: bool = False
    """Whether to take over an open transaction instead of aborting it (KIP-939)."""


class Unchanged(NamedTuple):
    """The request is a retry of one that took effect."""

    transaction: Transaction


class EndRequest(NamedTuple):
    """A request to end a transaction, by its producer or by the coordinator itself."""

    producer: ProducerKey
    committed: bool
    client_version: int


def init_producer_id(
    current: Transaction,
    request: InitRequest,
    *,
    is_pending: bool,
    new_producer_id: int | None,
    now_ms: int,
) -> Transaction | None:
    """Return the state for the next producer; None where the open transaction is aborted first."""
    expected, timeout_ms = request.expected, request.timeout_ms
    if is_pending:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _is_known(current, expected):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if current.state.is_prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is TransactionState.ONGOING:
        if request.keeps_prepared:
            return _take_over(current, timeout_ms, new_producer_id, now_ms)
        return None
    if _needs_producer_id(current, expected):
        if new_producer_id is None:
            raise ProducerIdRequired
        return transitions.rotate_producer_id(
            current, new_producer_id, timeout_ms, now_ms, keeps_epoch=expected is not None
        )
    expected_epoch = None if expected is None else expected.producer_epoch
    return transitions.increment_epoch(current, expected_epoch, timeout_ms, now_ms)


def _needs_producer_id(current: Transaction, expected: ProducerKey | None) -> bool:
    """Whether the next epoch is one of another producer id.

    The epoch after the last one is given to no producer: an abort by the coordinator has it.
    """
    if not current.is_epoch_exhausted:
        return False
    if expected is None or expected.producer_epoch == current.producer_epoch:
        return True
    is_last = current.producer_epoch == MAX_PRODUCER_EPOCH
    return is_last and expected.producer_epoch == current.last_epoch


def _take_over(
    current: Transaction, timeout_ms: int, new_producer_id: int | None, now_ms: int
) -> Transaction:
    """Return the open transaction with its next owner, whose end needs one more epoch.

    A transaction from before transaction version 2 cannot be ended with another epoch.
    """
    if not current.bumps_epoch:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    is_exhausted = current.owner[1] + 1 >= MAX_PRODUCER_EPOCH - 1
    if is_exhausted and new_producer_id is None:
        raise ProducerIdRequired
    new_id = new_producer_id if is_exhausted else None
    return transitions.take_over(current, new_id, timeout_ms, now_ms)


def _is_known(current: Transaction, expected: ProducerKey) -> bool:
    """Whether the producer is the current one, or one whose epochs were used up before."""
    return (
        current.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id in (current.producer_id, current.owner[0])
        or (
            expected.producer_id == current.previous_producer_id
            and expected.producer_epoch >= MAX_PRODUCER_EPOCH - 1
        )
    )


def check_producer(current: Transaction, producer: ProducerKey) -> None:
    """Refuse a producer that is not the current one of its transactional id."""
    owner_id, owner_epoch = current.owner
    if owner_id != producer.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if owner_epoch != producer.producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def check_writer(current: Transaction, producer: ProducerKey) -> None:
    """Refuse also the producer that has taken over a transaction: it can only end it."""
    check_producer(current, producer)
    if current.is_taken_over:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)


def add_partitions(
    current: Transaction,
    producer: ProducerKey,
    partitions: Collection[TopicPartition],
    *,
    is_pending: bool,
    client_version: int,
    now_ms: int,
) -> Transaction | Unchanged:
    """Return the transaction with more partitions."""
    if is_pending:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    check_writer(current, producer)
    if current.state.is_prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is TransactionState.ONGOING and current.partitions.issuperset(partitions):
        return Unchanged(current)
    return transitions.add_partitions(current, partitions, now_ms, client_version)


def end(
    current: Transaction,
    request: EndRequest,
    *,
    is_pending: bool,
    new_producer_id: int | None,
    now_ms: int,
) -> Transaction | Unchanged:
    """Return the decided transaction, for a client's request."""
    if request.client_version < EPOCH_BUMP_VERSION:
        return _end_with_shared_epoch(current, request, is_pending=is_pending, now_ms=now_ms)
    owner_id, owner_epoch = current.owner
    epoch = request.producer.producer_epoch
    is_overflow_retry = (
        current.previous_producer_id == request.producer.producer_id
        and epoch == MAX_PRODUCER_EPOCH - 1
        and current.producer_epoch == 0
    )
    is_bump_retry = current.bumps_epoch and owner_epoch == epoch + 1
    if is_pending:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if owner_id != request.producer.producer_id and not is_overflow_retry:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_retry = is_bump_retry or is_overflow_retry
    if not _may_end(current, epoch, is_bump_retry=is_bump_retry, is_retry=is_retry):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if _has_ended(current, request, is_retry=is_retry):
        return Unchanged(current)
    return _decide(current, request, new_producer_id, now_ms)


def _may_end(current: Transaction, epoch: int, *, is_bump_retry: bool, is_retry: bool) -> bool:
    """Whether the epoch is that of the next request in this state, or of a retry."""
    if current.state.is_prepared:
        return is_bump_retry
    if current.state.is_complete:
        return is_retry or epoch == current.producer_epoch
    return epoch == current.owner[1]


def _has_ended(current: Transaction, request: EndRequest, *, is_retry: bool) -> bool:
    """Whether the request has taken effect; INVALID_TXN_STATE when it contradicts the state."""
    state = current.state
    if state.is_prepared:
        same = request.committed is (state is TransactionState.PREPARE_COMMIT)
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS if same else ErrorCode.INVALID_TXN_STATE)
    if state is TransactionState.ONGOING:
        return False
    if state.is_complete and is_retry:
        if request.committed is (state is TransactionState.COMPLETE_COMMIT):
            return True
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    if request.committed:  # nothing was written: only an abort makes sense, and bumps the epoch
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return False


def _end_with_shared_epoch(
    current: Transaction, request: EndRequest, *, is_pending: bool, now_ms: int
) -> Transaction | Unchanged:
    """Decide for a producer before transaction version 2."""
    check_writer(current, request.producer)
    if is_pending or current.state.is_prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is TransactionState.ONGOING:
        return _decide(current, request, NO_PRODUCER_ID, now_ms)
    ended = (
        TransactionState.COMPLETE_COMMIT if request.committed else TransactionState.COMPLETE_ABORT
    )
    if current.state is ended:
        return Unchanged(current)
    raise KafkaError(ErrorCode.INVALID_TXN_STATE)


def _decide(
    current: Transaction, request: EndRequest, new_producer_id: int | None, now_ms: int
) -> Transaction:
    next_id = NO_PRODUCER_ID
    is_exhausted = current.is_epoch_exhausted and not current.is_taken_over
    if request.client_version >= EPOCH_BUMP_VERSION and is_exhausted:
        if new_producer_id is None:
            raise ProducerIdRequired
        next_id = new_producer_id
    return transitions.prepare_end(
        current,
        committed=request.committed,
        client_version=request.client_version,
        next_producer_id=next_id,
        now_ms=now_ms,
    )


def abort_by_coordinator(current: Transaction, client_version: int, now_ms: int) -> Transaction:
    """Return the aborted transaction of a producer that is fenced.

    From transaction version 2 on the abort itself bumps the epoch.
    """
    is_fenced_by_abort = client_version >= EPOCH_BUMP_VERSION or current.is_taken_over
    fenced = current if is_fenced_by_abort else transitions.fence(current)
    return transitions.prepare_end(
        fenced,
        committed=False,
        client_version=client_version,
        next_producer_id=NO_PRODUCER_ID,
        now_ms=now_ms,
    )
