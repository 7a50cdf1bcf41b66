"""Whether a request may change a transactional id; the transitions, pure functions of its state.

Each function returns the next state or raises KafkaError; NONE in `Unchanged` answers a retry.

Kafka: TransactionCoordinator.{prepareInitProducerIdTransit, handleAddPartitionsToTransaction,
endTransaction, endTransactionWithTV1}; TransactionMetadata.prepareIncrementProducerEpoch and its
neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
    from collections.abc import Collection, Iterable

    from ottla.types import TopicPartition


_NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


def new_transaction(transactional_id: str, producer_id: int, timeout_ms: int) -> Transaction:
    """Return the state of an id that is used for the first time; its epoch begins with 0."""
    return Transaction(transactional_id, producer_id, NO_PRODUCER_EPOCH, timeout_ms)


def _increment_epoch(
    current: Transaction, expected_epoch: int | None, timeout_ms: int, now_ms: int
) -> Transaction:
    """Fence the producer before by the next epoch; a retry gets the epoch that it did not learn.

    PRODUCER_FENCED for a producer that expects neither the current nor the last epoch.
    """
    epoch, last_epoch = current.producer_epoch + 1, NO_PRODUCER_EPOCH
    if expected_epoch is not None:
        if current.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
            last_epoch = current.producer_epoch
        elif expected_epoch == current.last_epoch:
            epoch, last_epoch = current.producer_epoch, current.last_epoch
        else:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return current._replace(
        state=TransactionState.EMPTY,
        producer_epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=_NO_PARTITIONS,
        start_ms=-1,
        update_ms=now_ms,
    )


def _rotate_producer_id(
    current: Transaction, producer_id: int, timeout_ms: int, now_ms: int, *, keeps_epoch: bool
) -> Transaction:
    """Continue with another producer id where the epochs of the current one are used up."""
    return current._replace(
        state=TransactionState.EMPTY,
        producer_id=producer_id,
        previous_producer_id=current.producer_id,
        producer_epoch=0,
        last_epoch=current.producer_epoch if keeps_epoch else NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        partitions=_NO_PARTITIONS,
        start_ms=-1,
        update_ms=now_ms,
    )


def _with_partitions(
    current: Transaction, partitions: Iterable[TopicPartition], now_ms: int, client_version: int
) -> Transaction:
    """Add partitions; the transaction begins with the first of them."""
    begins = current.state is TransactionState.EMPTY or current.state.is_complete
    return current._replace(
        state=TransactionState.ONGOING,
        partitions=current.partitions.union(partitions),
        start_ms=now_ms if begins else current.start_ms,
        update_ms=now_ms,
        client_version=client_version,
    )


def _with_next_owner(
    current: Transaction, new_producer_id: int | None, timeout_ms: int, now_ms: int
) -> Transaction:
    """Hand a prepared transaction to its next producer, which can only end it (KIP-939).

    The records keep the id and epoch that they were written with. A two-phase transaction remains
    one, whatever timeout the producer brings.
    """
    producer_id, epoch = current.owner
    if new_producer_id is not None:
        producer_id, epoch = new_producer_id, -1
    return current._replace(
        next_producer_id=producer_id,
        next_producer_epoch=epoch + 1,
        timeout_ms=current.timeout_ms if current.is_two_phase else timeout_ms,
        update_ms=now_ms,
    )


def _prepare_end(
    current: Transaction,
    *,
    committed: bool,
    client_version: int,
    next_producer_id: int,
    now_ms: int,
) -> Transaction:
    """Decide on a transaction; with transaction version 2 its markers carry the next epoch.

    One without partitions may be aborted: it begins now. At the end of the epochs the markers carry
    the last one again, which the leaders of partitions accept.
    """
    if current.is_taken_over:
        current = _with_epoch_of_owner(current)
        client_version = EPOCH_BUMP_VERSION
    bumps = client_version >= EPOCH_BUMP_VERSION and current.producer_epoch < MAX_PRODUCER_EPOCH
    is_open = current.state is TransactionState.ONGOING
    state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    return current._replace(
        state=state,
        producer_epoch=current.producer_epoch + 1 if bumps else current.producer_epoch,
        last_epoch=current.producer_epoch if bumps else current.last_epoch,
        next_producer_id=current.next_producer_id if current.is_taken_over else next_producer_id,
        start_ms=current.start_ms if is_open else now_ms,
        update_ms=now_ms,
        client_version=client_version,
    )


def _with_epoch_of_owner(current: Transaction) -> Transaction:
    """Return a transaction whose end gives its owner the next epoch, in its own producer id."""
    producer_id, epoch = current.owner
    if producer_id != current.producer_id:
        return current._replace(next_producer_epoch=epoch + 1)
    return current._replace(
        producer_epoch=epoch,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_PRODUCER_EPOCH,
    )


def _fence(current: Transaction) -> Transaction:
    """Take the open transaction from its producer before the coordinator aborts it."""
    if current.producer_epoch >= MAX_PRODUCER_EPOCH:
        return current
    epoch = current.producer_epoch + 1
    return current._replace(producer_epoch=epoch, last_epoch=NO_PRODUCER_EPOCH)


def complete(current: Transaction, now_ms: int) -> Transaction:
    """End a transaction whose markers are written."""
    committed = current.state is TransactionState.PREPARE_COMMIT
    state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    done = current._replace(state=state, partitions=_NO_PARTITIONS, update_ms=now_ms)
    if current.bumps_epoch and current.next_producer_id != NO_PRODUCER_ID:
        return done._replace(
            producer_id=current.next_producer_id,
            previous_producer_id=current.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            producer_epoch=max(current.next_producer_epoch, 0),
        )
    return done


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
        return _rotate_producer_id(
            current, new_producer_id, timeout_ms, now_ms, keeps_epoch=expected is not None
        )
    expected_epoch = None if expected is None else expected.producer_epoch
    return _increment_epoch(current, expected_epoch, timeout_ms, now_ms)


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
    return _with_next_owner(current, new_id, timeout_ms, now_ms)


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
    return _with_partitions(current, partitions, now_ms, client_version)


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
    return _prepare_end(
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
    fenced = current if is_fenced_by_abort else _fence(current)
    return _prepare_end(
        fenced,
        committed=False,
        client_version=client_version,
        next_producer_id=NO_PRODUCER_ID,
        now_ms=now_ms,
    )
