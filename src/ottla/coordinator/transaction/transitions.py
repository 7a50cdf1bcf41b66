"""The transitions of a transactional id: pure functions from one state to the next.

Kafka: TransactionMetadata.prepareIncrementProducerEpoch and its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from collections.abc import Iterable

    from ottla.types import TopicPartition

_NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


def new_transaction(transactional_id: str, producer_id: int, timeout_ms: int) -> Transaction:
    """Return the state of an id that is used for the first time; its epoch begins with 0."""
    return Transaction(transactional_id, producer_id, NO_PRODUCER_EPOCH, timeout_ms)


def increment_epoch(
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


def rotate_producer_id(
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


def add_partitions(
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


def take_over(
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


def prepare_end(
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


def fence(current: Transaction) -> Transaction:
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
