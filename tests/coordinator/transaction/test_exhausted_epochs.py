"""Transactions of producers whose epochs are used up: none of them may stay open for ever."""

from __future__ import annotations

import pytest

from ottla.coordinator.transaction import decisions
from ottla.coordinator.transaction.decisions import (
    EndRequest,
    InitRequest,
    ProducerIdRequired,
    ProducerKey,
)
from ottla.coordinator.transaction.state import MAX_PRODUCER_EPOCH, Transaction, TransactionState
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

LAST_GIVEN_OUT = MAX_PRODUCER_EPOCH - 1


def open_transaction(epoch: int) -> Transaction:
    """Return an open transaction of producer 1, of a client of transaction version 2."""
    partitions = frozenset({TopicPartition("a", 0)})
    state = TransactionState.ONGOING
    return Transaction("t", 1, epoch, 60_000, state, partitions, 1, 1, client_version=2)


def init(current: Transaction, expected_epoch: int, new_producer_id: int | None) -> Transaction:
    """Return the state for a producer that comes back with its id and epoch."""
    request = InitRequest("t", 60_000, ProducerKey(1, expected_epoch))
    found = decisions.init_producer_id(
        current, request, is_pending=False, new_producer_id=new_producer_id, now_ms=2
    )
    assert found is not None
    return found


def test_a_fenced_producer_comes_back_with_another_id() -> None:
    """The abort took the last epoch of all, with which no transaction could be ended."""
    aborted = decisions.abort_by_coordinator(open_transaction(LAST_GIVEN_OUT), 2, 2)
    assert aborted.producer_epoch == MAX_PRODUCER_EPOCH
    done = decisions.complete(aborted, 3)
    with pytest.raises(ProducerIdRequired):
        init(done, LAST_GIVEN_OUT, None)
    renewed = init(done, LAST_GIVEN_OUT, 9)
    assert (renewed.owner, renewed.previous_producer_id) == ((9, 0), 1)
    with pytest.raises(KafkaError) as raised:
        init(done, LAST_GIVEN_OUT - 1, 9)
    assert raised.value.code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_with_the_last_epoch_of_all_can_be_ended(committed: bool) -> None:  # noqa: FBT001 - a case
    """Its markers carry that epoch again; what follows has another producer id."""
    request = EndRequest(ProducerKey(1, MAX_PRODUCER_EPOCH), committed, 2)
    decided = decisions.end(
        open_transaction(MAX_PRODUCER_EPOCH),
        request,
        is_pending=False,
        new_producer_id=9,
        now_ms=2,
    )
    assert isinstance(decided, Transaction)
    assert (decided.producer_id, decided.producer_epoch) == (1, MAX_PRODUCER_EPOCH)
    assert decisions.complete(decided, 3).owner == (9, 0)


def test_a_transaction_with_the_last_epoch_of_all_times_out() -> None:
    """The coordinator has no producer id for what follows; the next producer gets one."""
    aborted = decisions.abort_by_coordinator(open_transaction(MAX_PRODUCER_EPOCH), 2, 2)
    done = decisions.complete(aborted, 3)
    assert done.owner == (1, MAX_PRODUCER_EPOCH)
    assert init(done, MAX_PRODUCER_EPOCH, 9).owner == (9, 0)
