"""What becomes of the batches of a transaction that is aborted while they are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ottla.clients.producer.transaction_state import ProducerTransactionState, State
from ottla.errors import ErrorCode, TransactionAbortedError
from ottla.protocol.apis.produce import ProduceRequest
from tests.clients.producer.test_producer import Rig, _refuse

if TYPE_CHECKING:
    from ottla.clients.producer.transactions import Transactions


class Transaction:
    """A transaction whose coordinator knows all partitions."""

    transactional_id = "id"
    produce_version = None

    def __init__(self) -> None:
        self.state = ProducerTransactionState()
        self.state.state = State.IN_TRANSACTION

    def may_send_to(self, _partition: object, _now_ms: int) -> bool:
        return True


def test_a_batch_that_fails_during_an_abort_is_not_sent_again() -> None:
    """The abort would wait for it until delivery.timeout.ms."""
    rig = Rig()
    transaction = Transaction()
    rig.sender.transactions = cast("Transactions", transaction)
    rig.sender.use_producer(5, 0)
    rig.cluster.faults[ProduceRequest] = [_refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 100
    delivery = rig.send(b"a")
    rig.sim.run(lambda: rig.cluster.requests(ProduceRequest))
    assert not delivery.done
    transaction.state.enter(State.ABORTING, State.IN_TRANSACTION)
    rig.finish(limit_ms=1000)
    assert isinstance(delivery.error, TransactionAbortedError)
    assert len(rig.cluster.requests(ProduceRequest)) == 1
    assert transaction.state.needs_bump
