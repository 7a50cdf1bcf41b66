"""The records of `__transaction_state`: the encoder's bytes are those of the message's schema."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.coordinator.transaction import state as records
from ottla.coordinator.transaction.state import Transaction, TransactionState
from ottla.protocol import codec
from ottla.protocol.records.transaction import TransactionLogKey, TransactionLogValue
from ottla.types import TopicPartition


def _random(rng: Random) -> Transaction:
    state = rng.choice(list(TransactionState))
    count = 0 if state is TransactionState.EMPTY else rng.choice((0, 1, 3, 200))
    names = [f"topic-{number}" * rng.choice((1, 20)) for number in range(rng.randint(1, 3))]
    return Transaction(
        rng.choice(("t", "é" * 40, "long" * 50)),
        rng.getrandbits(40),
        rng.randint(-1, 0x7FFF),
        rng.choice((1, 60_000, 0x7FFF_FFFF)),
        state,
        frozenset(TopicPartition(rng.choice(names), rng.randint(0, 999)) for _ in range(count)),
        rng.choice((-1, 1_700_000_000_000)),
        rng.choice((-1, 1_700_000_000_001)),
        rng.choice((-1, 0, 7)),
        rng.choice((-1, 0, 1 << 40)),
        rng.choice((-1, 0, 5)),
        rng.choice((0, 1, 2)),
    )


def _message(transaction: Transaction, version: int) -> TransactionLogValue:
    partitions = None
    if transaction.state is not TransactionState.EMPTY:
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(transaction.partitions):
            topics.setdefault(topic, []).append(index)
        of_topic = TransactionLogValue.PartitionsSchema
        partitions = [of_topic(topic=name, partition_ids=topics[name]) for name in topics]
    tagged: dict[str, Any] = {}
    if version:
        tagged = {
            "previous_producer_id": transaction.previous_producer_id,
            "next_producer_id": transaction.next_producer_id,
            "next_producer_epoch": transaction.next_producer_epoch,
            "client_transaction_version": transaction.client_version,
        }
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        **tagged,
    )


@pytest.mark.parametrize("seed", range(100))
def test_bytes_are_those_of_the_schema(seed: int) -> None:
    """And what is read back is the state that the coordinator holds."""
    rng = Random(seed)
    transaction = _random(rng)
    record = records.record_of(transaction, rng.choice((0, 1)))
    version = record.value_version
    assert version == 1 or not transaction.is_taken_over
    key, value = records.encode(record)
    name = TransactionLogKey(transactional_id=transaction.transactional_id)
    assert key == b"\0\0" + codec.to_bytes(name, 0)
    message = codec.to_bytes(_message(transaction, version), version)
    assert value == version.to_bytes(2, "big") + message
    assert records.decode(key, value) == record


def test_a_tombstone_has_no_value() -> None:
    """It names the id alone."""
    record = records.tombstone("t")
    key, value = records.encode(record)
    assert value is None
    assert records.decode(key, value) == record
