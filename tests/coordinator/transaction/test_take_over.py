"""Prepared transactions that are taken over at the end of the epochs, and their records."""

from __future__ import annotations

import pytest

from ottla.coordinator.transaction import decisions, state
from ottla.coordinator.transaction.decisions import (
    EndRequest,
    InitRequest,
    ProducerIdRequired,
    ProducerKey,
    Unchanged,
)
from ottla.coordinator.transaction.state import (
    MAX_PRODUCER_EPOCH,
    TWO_PHASE_TIMEOUT_MS,
    Transaction,
    TransactionState,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

KEEP = InitRequest("t", TWO_PHASE_TIMEOUT_MS, keeps_prepared=True)


def open_transaction(epoch: int, client_version: int = 2) -> Transaction:
    """Return an open two-phase transaction of producer 1."""
    return Transaction(
        "t",
        1,
        epoch,
        TWO_PHASE_TIMEOUT_MS,
        TransactionState.ONGOING,
        frozenset({TopicPartition("a", 0)}),
        start_ms=1,
        update_ms=1,
        client_version=client_version,
    )


def take_over(current: Transaction, new_producer_id: int | None = None) -> Transaction:
    """Return the transaction with its next owner."""
    found = decisions.init_producer_id(
        current, KEEP, is_pending=False, new_producer_id=new_producer_id, now_ms=2
    )
    assert found is not None
    return found


def end(current: Transaction, producer: tuple[int, int], *, committed: bool = True) -> Transaction:
    """Return the decided transaction, or the one that a retry finds."""
    request = EndRequest(ProducerKey(*producer), committed, 2)
    found = decisions.end(current, request, is_pending=False, new_producer_id=None, now_ms=3)
    return found.transaction if isinstance(found, Unchanged) else found


def test_a_new_producer_id_where_the_epochs_are_used_up() -> None:
    """The markers have the old id, the answer and what follows the new one."""
    current = open_transaction(MAX_PRODUCER_EPOCH - 2)
    with pytest.raises(ProducerIdRequired):
        take_over(current)
    taken = take_over(current, 7)
    assert taken.owner == (7, 0)
    decided = end(taken, (7, 0))
    assert (decided.producer_id, decided.producer_epoch) == (1, MAX_PRODUCER_EPOCH - 1)
    done = decisions.complete(decided, 4)
    assert (done.owner, done.is_taken_over, done.previous_producer_id) == ((7, 1), False, 1)
    assert end(done, (7, 0)) is done


def test_the_decision_is_not_made_twice() -> None:
    """A retry while the markers are written, for both ways to number the next epoch."""
    for taken in (
        take_over(open_transaction(5)),
        take_over(open_transaction(MAX_PRODUCER_EPOCH - 1), 7),
    ):
        decided = end(taken, taken.owner)
        with pytest.raises(KafkaError) as raised:
            end(decided, taken.owner)
        assert raised.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        with pytest.raises(KafkaError) as raised:
            end(decided, taken.owner, committed=False)
        assert raised.value.code is ErrorCode.INVALID_TXN_STATE


def test_an_epoch_is_given_out_once() -> None:
    """Each take-over has an epoch of its own; the last one that is given out can still end it."""
    current, seen = open_transaction(MAX_PRODUCER_EPOCH - 6), set()
    for new_producer_id in (None, None, None, None, 8, None):
        current = take_over(current, new_producer_id)
        assert current.owner not in seen
        seen.add(current.owner)
        done = decisions.complete(end(current, current.owner), 4)
        assert done.owner == (current.owner[0], current.owner[1] + 1)
        assert done.producer_epoch <= MAX_PRODUCER_EPOCH - 1


def test_a_transaction_of_an_old_client_is_not_taken_over() -> None:
    """Its end cannot number another epoch."""
    with pytest.raises(KafkaError) as raised:
        take_over(open_transaction(5, client_version=0))
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_an_old_client_cannot_end_what_was_taken_over() -> None:
    """EndTxn before version 5 knows nothing of the epoch that follows."""
    taken = take_over(open_transaction(5))
    with pytest.raises(KafkaError) as raised:
        decisions.end(
            taken,
            EndRequest(ProducerKey(*taken.owner), True, 0),
            is_pending=False,
            new_producer_id=None,
            now_ms=3,
        )
    assert raised.value.code is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 1])
def test_the_record_holds_both_epochs(version: int) -> None:
    """Also where transaction.version 0 is finalised meanwhile; the log is loaded at any time."""
    taken = take_over(open_transaction(MAX_PRODUCER_EPOCH - 1), 7)
    key, value = state.encode(state.record_of(taken, version))
    decoded = state.decode(key, value)
    assert decoded is not None
    assert decoded.value == taken


def test_an_abort_by_the_coordinator_fences_the_owner() -> None:
    """Where the finalised level is lower than that of the transaction, too."""
    for version in (0, 2):
        taken = take_over(take_over(open_transaction(5)))
        aborted = decisions.abort_by_coordinator(taken, version, 3)
        assert decisions.complete(aborted, 4).owner == (1, 8)
